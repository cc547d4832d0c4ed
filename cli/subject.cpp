#include "cli/subject.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "cli/buffer.hpp"
#include "cli/device_operands.hpp"
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

Computed compute_on_device(const Plan& plan, const Operands& operands) {
  DeviceOperands inputs(operands);
  DeviceBuffer packed(plan.packed_size()), workspace(plan.workspace_size()), y(output_bytes(operands.problem));
  plan.pack(inputs.buffer("weight").data(), packed.data());
  convnorm_tensors tensors = inputs.view();
  tensors.packed_weight = packed.data();
  tensors.y = y.data();
  plan.execute(tensors, workspace.data());
  Computed computed;
  computed.y.resize(y.size());
  y.download(computed.y.data());
  computed.fault = guard_fault(y.guards_intact(), workspace.guards_intact(), packed.guards_intact());
  if (computed.fault.empty()) computed.fault = inputs.changed(operands);
  return computed;
}

}  // namespace

std::string guard_fault(bool y_intact, bool workspace_intact, bool packed_intact) {
  if (!y_intact) return "wrote outside of y";
  if (!workspace_intact) return "wrote outside of its workspace";
  if (!packed_intact) return "wrote outside of its packed weight";
  return "";
}

Computed compute(const Subject& subject, const Operands& operands) {
  if (subject.compute_on_device) return subject.compute_on_device(operands);
  // The subject sees clones: should it change its inputs, neither the reference nor this comparison is fooled.
  const Operands inputs = operands;
  GuardedBuffer packed(subject.packed_size), workspace(subject.workspace_size), y(output_bytes(operands.problem));
  subject.pack(inputs.tensors.at("weight").data.data(), packed.data());
  convnorm_tensors tensors = inputs.view();
  tensors.packed_weight = packed.data();
  tensors.y = y.data();
  subject.execute(tensors, workspace.data());
  Computed computed{{y.bytes().begin(), y.bytes().end()},
                    guard_fault(y.guards_intact(), workspace.guards_intact(), packed.guards_intact())};
  for (const auto& [name, tensor] : operands.tensors) {
    if (tensor.data != inputs.tensors.at(name).data) computed.fault = "changed its input " + name;
  }
  return computed;
}

Subject planned_subject(std::shared_ptr<const Plan> plan) {
  Subject subject = {
      .path = plan->path(),
      .target = plan->target(),
      .packed_size = plan->packed_size(),
      .workspace_size = plan->workspace_size(),
      .pack = [plan](const void* weight, void* packed) { plan->pack(weight, packed); },
      .execute = [plan](const convnorm_tensors& tensors, void* workspace) { plan->execute(tensors, workspace); }};
  if (plan->on_gpu()) {
    subject.compute_on_device = [plan](const Operands& operands) { return compute_on_device(*plan, operands); };
  }
  return subject;
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
