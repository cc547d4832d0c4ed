#include "kernels/cuda/sm90_onchip/onchip.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/sm90_onchip/launch.hpp"
#include "kernels/cuda/sm90_onchip/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace sm90_onchip;

constexpr double kLaunchUs = 1.0, kClockGhz = 1.7;  // under load

class Sm90Onchip final : public CudaExecutable {
 public:
  Sm90Onchip(const PlanRequest& request, const Config& config) : CudaExecutable(request), config_(config) {}

  void prepare() const override {
    if (config_.exchanges()) reserve_sync_slot(device_.ordinal, config_.exchange_words());
  }

  size_t workspace_bytes() const override {
    return config_.arranged ? static_cast<size_t>(config_.arranged_bytes()) : 0;
  }

  std::string packing() const override {
    return fmt::format("k16={},parts={},blocks={}", config_.chunk_k16, config_.parts, config_.blocks);
  }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    const SharedPlan plan(c, static_cast<int>(element_size(problem_.dtype)));
    return {
        {"tile", fmt::format("{} channels x {} columns ({} samples x {} positions)", kBlockRows * c.warpgroups,
                             c.tile_columns, c.samples, c.tile_positions)},
        {"products", std::to_string(products_of(c.parts))},
        {"epilogue", c.by_warps ? "by warps" : "by warpgroups"},
        {"order", c.staggered ? "warpgroups one after the other" : "warpgroups side by side"},
        {"x", fmt::format("{} of {} chunks of {} channels, {} rows, {} bytes each", c.x_slots, c.chunks,
                          16 * c.chunk_k16, c.rows(), plan.x_slot_bytes)},
        {"x arranged", c.arranged ? fmt::format("by a launch before, {} bytes", c.arranged_bytes()) : "by every tile"},
        {"weights", fmt::format("{} stages of {} bytes", c.weight_slots, plan.stage_bytes)},
        {"shared memory", fmt::format("{} bytes", plan.bytes)},
        {"CTAs", fmt::format("{} in {} teams, {} domains, {} each", c.ctas(), c.teams, c.domains, c.iterations)},
        {"exchange", c.exchanges() ? fmt::format("{} words", c.exchange_words()) : "none"},
    };
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_);
    return {.flops = sizes_.flops,
            .min_bytes = least,
            .moved_bytes = least + 2.0 * static_cast<double>(workspace_bytes()),
            .workspace_bytes = static_cast<double>(workspace_bytes()),
            .tensor_cores = true,
            .split_parts = problem_.dtype == CONVNORM_F32 ? config_.parts : 0};
  }

  double expected_us() const override { return kLaunchUs + estimated_cycles(problem_, config_) * 1e-3 / kClockGhz; }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(packed_elements(problem_, config_)) * 2; }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    sm90_onchip::pack(problem_, config_, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void* workspace, cudaStream_t stream) const override {
    SyncSlot slot{};
    if (config_.exchanges()) slot = sync_slot(device_.ordinal, stream, config_.exchange_words());
    launch_onchip(arguments, config_, slot, workspace, stream);
  }

 private:
  Config config_;
};

}  // namespace

Answer consider_sm90_onchip(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Sm90Onchip>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
