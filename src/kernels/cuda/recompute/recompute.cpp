#include "kernels/cuda/recompute/recompute.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/recompute/launch.hpp"
#include "kernels/cuda/recompute/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace recompute;

class Recompute final : public CudaExecutable {
 public:
  Recompute(const PlanRequest& request, const Config& config)
      : CudaExecutable(request),
        config_(config),
        packed_(packed_plan(config, problem_.conv_groups, sizes_.c_per_conv_group)),
        shared_(shared_plan(config, sizes_.c_per_conv_group, static_cast<int>(element_size(problem_.dtype)))) {}

  void prepare() const override {
    if (config_.words() > 0) reserve_sync_slot(device_.ordinal, config_.words());
  }

  size_t workspace_bytes() const override { return 0; }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    return {
        {"products", fmt::format("{} pairs of {}, {}", c.pairs, c.pairs_of_channels ? "channels" : "taps",
                                 c.parts == 2 ? "3 of scaled fp16 halves" : "1")},
        {"blocks", fmt::format("{} of {} channels, {} places within a sector, {} sets", c.blocks(), c.block_channels,
                               c.classes, c.sets)},
        {"CTAs", fmt::format("{} in {} teams, {} rounds", c.grid(), c.teams, c.rounds)},
        {"window", fmt::format("{} positions, {} a CTA, by {} warps", c.window(), c.windows, c.position_warps)},
        {"shared memory", fmt::format("{} bytes", shared_.bytes)},
        {"exchange", c.words() > 0 ? fmt::format("{} words", c.words()) : "none"},
    };
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_);
    const double x = static_cast<double>(sizes_.x_elements * element_size(problem_.dtype));
    return {.flops = (has_norm(problem_) ? 2 : 1) * sizes_.flops,
            .min_bytes = least,
            .moved_bytes = least + (has_norm(problem_) && config_.windows > 1 ? x : 0),
            .tensor_cores = true};
  }

  double expected_us() const override { return recompute::expected_us(problem_, sizes_, config_); }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(packed_.bytes); }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    recompute::pack(problem_arguments(problem_, sizes_), config_, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void*, cudaStream_t stream) const override {
    SyncSlot slot{};
    if (config_.words() > 0) slot = sync_slot(device_.ordinal, stream, config_.words());
    launch_recompute({config_, packed_, shared_, slot, arguments, {}}, stream);
  }

 private:
  Config config_;
  PackedPlan packed_;
  SharedPlan shared_;
};

}  // namespace

Answer consider_recompute(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Recompute>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
