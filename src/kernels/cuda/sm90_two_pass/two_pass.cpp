#include "kernels/cuda/sm90_two_pass/two_pass.hpp"

#include <algorithm>

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/sm90_onchip/launch.hpp"
#include "kernels/cuda/sm90_onchip/plan.hpp"
#include "kernels/cuda/sm90_two_pass/launch.hpp"
#include "kernels/cuda/sm90_two_pass/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace sm90_two_pass;

class Sm90TwoPass final : public CudaExecutable {
 public:
  Sm90TwoPass(const PlanRequest& request, const Config& config)
      : CudaExecutable(request), config_(config), places_(workspace_plan(problem_, config)) {}

  size_t workspace_bytes() const override { return static_cast<size_t>(places_.bytes); }

  std::string packing() const override {
    const sm90_onchip::Config& c = config_.tiles;
    return fmt::format("k16={},parts={},blocks={}", c.chunk_k16, c.parts, c.blocks);
  }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const sm90_onchip::Config& c = config_.tiles;
    const sm90_onchip::SharedPlan plan(c, static_cast<int>(element_size(problem_.dtype)));
    return {
        {"second pass", config_.way == Way::kRecompute ? "convolves again"
                        : config_.in_place             ? "normalises z, which lies in y"
                                                       : "normalises z, which lies in the workspace"},
        {"tile", fmt::format("{} channels x {} columns", kBlockRows * c.warpgroups, c.tile_columns)},
        {"products", std::to_string(c.parts * (c.parts + 1) / 2)},
        {"order", config_.width == Width::kPair ? "two CTAs beside each other on an SM"
                  : c.staggered                 ? "warpgroups one after the other"
                                                : "warpgroups side by side"},
        {"x", fmt::format("{} of {} chunks of {} channels, {} rows, {} bytes each", c.x_slots, c.chunks,
                          16 * c.chunk_k16, c.rows(), plan.x_slot_bytes)},
        {"weights", fmt::format("{} stages of {} bytes", c.weight_slots, plan.stage_bytes)},
        {"shared memory", fmt::format("{} bytes", plan.bytes)},
        {"CTAs", fmt::format("{} for {} tiles", c.teams, c.domains)},
        {"at once", fmt::format("{} samples", config_.at_once)},
    };
  }

  Accounting accounting() const override {
    const bool again = config_.way == Way::kRecompute;
    const double least = compulsory_bytes(problem_, sizes_), z = 4.0 * static_cast<double>(sizes_.z_elements);
    const double x = static_cast<double>(sizes_.x_elements * element_size(problem_.dtype));
    return {.flops = sizes_.flops * (again ? 2 : 1),
            .min_bytes = least,
            .moved_bytes = least + (again ? x : 2 * z),
            .z_bytes = again ? 0 : z,
            .workspace_bytes = static_cast<double>(places_.bytes),
            .tensor_cores = true,
            .split_parts = problem_.dtype == CONVNORM_F32 ? config_.tiles.parts : 0};
  }

  double expected_us() const override { return estimated_us(problem_, sizes_, device_, config_); }

 protected:
  size_t packed_weight_bytes() const override {
    return static_cast<size_t>(sm90_onchip::packed_elements(problem_, config_.tiles)) * 2;
  }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    sm90_onchip::pack(problem_, config_.tiles, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void* workspace, cudaStream_t stream) const override {
    for (int64_t first = 0; first < problem_.n; first += config_.at_once) {
      enqueue_samples(from_sample(arguments, first, std::min(config_.at_once, problem_.n - first)),
                      static_cast<char*>(workspace), stream);
    }
  }

 private:
  void enqueue_samples(const Arguments& a, char* workspace, cudaStream_t stream) const {
    const sm90_onchip::Config tiles = tiles_of(config_, a.n, device_.sm_count);
    const GroupPieces pieces = {reinterpret_cast<GroupPieces::Moments*>(workspace + places_.pieces), config_.segments,
                                tiles.tile_columns, config_.blocks, config_.of_block};
    auto* norms = reinterpret_cast<any_arch::Norm*>(workspace + places_.norms);
    ZRows z = {nullptr, config_.pitch, norms};
    if (config_.way == Way::kStore) z.z = static_cast<float*>(config_.in_place ? a.y : workspace + places_.z);
    launch_measure(a, tiles, config_.width, z, pieces, stream);
    launch_merge(a, pieces, norms, stream);
    if (config_.way == Way::kStore) {
      launch_normalise(a, z, stream);
    } else {
      launch_finish(a, tiles, config_.width, norms, stream);
    }
  }

  // The call's samples [first, first + count) alone.
  Arguments from_sample(Arguments a, int64_t first, int64_t count) const {
    const int64_t element = element_size(a.dtype), parameter = element_size(a.param_dtype);
    const auto skip = [](const void*& tensor, int64_t bytes) {
      if (tensor != nullptr) tensor = static_cast<const char*>(tensor) + bytes;
    };
    skip(a.x, first * a.c * a.l * element);
    skip(a.residual, first * a.c_y * a.l_out * element);
    for (int i = 0; i < a.post_count; ++i) {
      if (a.post[i].op != CONVNORM_FILM) continue;
      skip(a.film_scale, first * a.post[i].channels * parameter);
      skip(a.film_shift, first * a.post[i].channels * parameter);
    }
    if (a.lengths != nullptr) a.lengths += first;
    a.y = static_cast<char*>(a.y) + first * a.c_y * a.l_out * element;
    a.n = count;
    return a;
  }

  Config config_;
  WorkspacePlan places_;
};

}  // namespace

Answer consider_sm90_two_pass(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Sm90TwoPass>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
