#include "cli/subject.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "cli/tensors.hpp"

namespace convnorm::cli {
namespace {

size_t round_up(size_t size) { return (size + 63) / 64 * 64; }

convnorm_problem convolution_of(const convnorm_problem& problem) {
  convnorm_problem p = problem;
  p.groups = 0;
  p.pre = {CONVNORM_NONE, 0};
  p.post_count = 0;
  return p;
}

// A depthwise convolution with one tap of weight 1 hands z to the norm as it is.
convnorm_problem norm_of(const convnorm_problem& problem) {
  convnorm_problem p = problem;
  p.c = problem.o;
  p.l = convnorm_problem_output_length(&problem);
  p.conv_groups = problem.o;
  p.k = p.stride = p.dilation = 1;
  p.pad_left = p.pad_right = 0;
  p.pad = CONVNORM_ZEROS;
  p.bias = 0;
  return p;
}

// Valid outputs of a sample with `length` valid inputs.
int64_t valid_outputs(const convnorm_problem& p, int64_t length) {
  const int64_t room = length + p.pad_left + p.pad_right - p.dilation * (p.k - 1) - 1;
  return room < 0 ? 0 : room / p.stride + 1;
}

}  // namespace

Subject planned_subject(std::shared_ptr<const Plan> plan) {
  return {.path = plan->path(),
          .target = plan->target(),
          .packed_size = plan->packed_size(),
          .workspace_size = plan->workspace_size(),
          .pack = [plan](const void* weight, void* packed) { plan->pack(weight, packed); },
          .execute = [plan](const convnorm_tensors& tensors, void* workspace) { plan->execute(tensors, workspace); }};
}

Subject unfused_subject(const convnorm_problem& problem, const convnorm_plan_options& options) {
  const auto convolution = std::make_shared<const Plan>(convolution_of(problem), options);
  const auto norm = std::make_shared<const Plan>(norm_of(problem), options);
  const convnorm_problem& np = norm->problem();

  const size_t norm_packed_at = round_up(convolution->packed_size());
  const size_t z_elements = static_cast<size_t>(np.n * np.c * np.l);
  const size_t lengths_at = round_up(z_elements * dtype_size(problem.dtype));
  const size_t scratch_at = lengths_at + round_up(static_cast<size_t>(problem.n) * sizeof(int64_t));

  // 1 in the dtype of the line.
  const Tensor ones = convert({ElementType::f32,
                               {problem.o},
                               [&] {
                                 std::vector<std::byte> bytes(static_cast<size_t>(problem.o) * sizeof(float));
                                 std::fill_n(reinterpret_cast<float*>(bytes.data()), problem.o, 1.0f);
                                 return bytes;
                               }()},
                              element_type(problem.dtype));

  return {.path = std::string(convolution->path()) + " + " + norm->path(),
          .target = convolution->target(),
          .packed_size = norm_packed_at + norm->packed_size(),
          .workspace_size = scratch_at + std::max(convolution->workspace_size(), norm->workspace_size()),
          .pack =
              [=](const void* weight, void* packed) {
                convolution->pack(weight, packed);
                norm->pack(ones.data.data(), static_cast<std::byte*>(packed) + norm_packed_at);
              },
          .execute =
              [=](const convnorm_tensors& tensors, void* workspace) {
                std::byte* const z = static_cast<std::byte*>(workspace);
                convnorm_tensors first{};
                first.x = tensors.x;
                first.packed_weight = tensors.packed_weight;
                first.bias = tensors.bias;
                first.lengths = tensors.lengths;
                first.param_dtype = tensors.param_dtype;
                first.y = z;
                convolution->execute(first, z + scratch_at);

                convnorm_tensors second = tensors;
                second.x = z;
                second.packed_weight = static_cast<const std::byte*>(tensors.packed_weight) + norm_packed_at;
                second.bias = nullptr;
                if (tensors.lengths != nullptr) {
                  int64_t* const lengths = reinterpret_cast<int64_t*>(z + lengths_at);
                  for (int64_t i = 0; i < problem.n; ++i) lengths[i] = valid_outputs(problem, tensors.lengths[i]);
                  second.lengths = lengths;
                }
                norm->execute(second, z + scratch_at);
              }};
}

}  // namespace convnorm::cli
