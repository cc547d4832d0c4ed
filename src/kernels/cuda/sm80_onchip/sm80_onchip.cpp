#include "kernels/cuda/sm80_onchip/sm80_onchip.hpp"

#include <algorithm>
#include <bit>

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/sm80_onchip/launch.hpp"
#include "kernels/cuda/sm80_onchip/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace sm80_onchip;

constexpr double kLaunchUs = 1.0;
constexpr double kHopperMargin = 1.8;
constexpr double kClockUnderLoad = 0.86;  // of the highest

class Sm80Onchip final : public CudaExecutable {
 public:
  Sm80Onchip(const PlanRequest& request, const Config& config) : CudaExecutable(request), config_(config) {}

  void prepare() const override {
    if (config_.exchanges()) reserve_sync_slot(device_.ordinal, config_.exchange_words());
  }

  size_t workspace_bytes() const override { return 0; }

  std::string packing() const override { return fmt::format("parts={},blocks={}", config_.parts, config_.blocks); }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    const SharedPlan plan(c, static_cast<int>(element_size(problem_.dtype)));
    return {
        {"tile", fmt::format("{} channels x {} columns ({} samples x {} positions)", kBlockRows * c.warpgroups,
                             c.tile_columns, c.samples, c.tile_positions)},
        {"products", std::to_string(products_of(c.parts))},
        {"epilogue", c.by_warps ? "by warps" : "by blocks"},
        {"x", fmt::format("{} chunks of {} channels, {} rows, {} bytes each", c.chunks, 16 * c.chunk_k16, c.rows(),
                          plan.x_slot_bytes)},
        {"shared memory", fmt::format("{} bytes", plan.bytes)},
        {"CTAs", fmt::format("{} in {} teams, {} an SM, {} domains, {} each", c.ctas(), c.teams, c.ctas_per_sm,
                             c.domains, c.iterations)},
        {"exchange", c.exchanges() ? fmt::format("{} words", c.exchange_words()) : "none"},
    };
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_);
    return {.flops = sizes_.flops,
            .min_bytes = least,
            .moved_bytes = least,
            .tensor_cores = true,
            .split_parts = problem_.dtype == CONVNORM_F32 ? config_.parts : 0};
  }

  double expected_us() const override {
    double computing = estimated_cycles(problem_, config_, device_) * 1e-3 / (kClockUnderLoad * device_.clock_ghz);
    // On Hopper sm90_onchip was 1.2 to 2.5 times as fast at all that it takes too, but for strides that are no power of
    // two, whose rows it loads one by one. The estimates of both err by about as much.
    const bool on_wgmma =
        device_.major == 9 && problem_.layout == CONVNORM_NCL && problem_.conv_groups == 1 && !config_.halves;
    if (on_wgmma && std::has_single_bit(static_cast<uint64_t>(problem_.stride))) computing *= kHopperMargin;
    const double bytes = compulsory_bytes(problem_, sizes_);
    return kLaunchUs +
           (device_.bandwidth_gbps > 0 ? std::max(computing, bytes * 1e-3 / device_.bandwidth_gbps) : computing);
  }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(packed_elements(problem_, config_)) * 2; }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    sm80_onchip::pack(problem_, config_, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void*, cudaStream_t stream) const override {
    SyncSlot slot{};
    if (config_.exchanges()) slot = sync_slot(device_.ordinal, stream, config_.exchange_words());
    launch_onchip(arguments, config_, slot, stream);
  }

 private:
  Config config_;
};

}  // namespace

Answer consider_sm80_onchip(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Sm80Onchip>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
