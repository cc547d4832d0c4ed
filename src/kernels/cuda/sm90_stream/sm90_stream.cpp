#include "kernels/cuda/sm90_stream/sm90_stream.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/sm90_stream/launch.hpp"
#include "kernels/cuda/sm90_stream/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace sm90_stream;

class Sm90Stream final : public CudaExecutable {
 public:
  Sm90Stream(const PlanRequest& request, const Config& config)
      : CudaExecutable(request), config_(config), constant_weights_(request.constant_weights) {}

  void prepare() const override {
    if (config_.exchange == Exchange::kWords) reserve_sync_slot(device_.ordinal, words());
  }

  size_t workspace_bytes() const override { return 0; }

  std::string packing() const override {
    return fmt::format("tile={},blocks={},parts={}", config_.tile_channels, config_.blocks, config_.parts);
  }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    return {
        {"tile", fmt::format("{} channels x {} columns ({} samples, {} positions a sample)", c.tile_channels,
                             c.columns(), c.tile_samples, 1 << c.positions_log2)},
        {"products", fmt::format("{}", c.products())},
        {"taps", c.taps > 0 ? "shifted in registers" : "loaded one by one"},
        {"CTAs", fmt::format("{}, {} a tile, clusters of {}", c.grid(), c.k_slices(), c.cluster())},
        {"warps", fmt::format("{} with {} blocks of {} input channels", kWarps, c.blocks_per_warp, kBlockInputs)},
        {"exchange", c.exchange == Exchange::kNone      ? "none"
                     : c.exchange == Exchange::kCluster ? "shared memory of the cluster"
                                                        : fmt::format("{} words", words())},
        {"launch",
         constant_weights_ ? "dependent: weights are requested before the kernel before it has ended" : "plain"},
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

  double expected_us() const override { return estimated_us(problem_, config_, device_); }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(packed_elements(problem_, config_)) * 2; }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    sm90_stream::pack(problem_, config_, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void*, cudaStream_t stream) const override {
    SyncSlot slot{};
    if (config_.exchange == Exchange::kWords) slot = sync_slot(device_.ordinal, stream, words());
    launch_stream(arguments, config_, slot, constant_weights_, stream);
  }

 private:
  int64_t words() const {
    return int64_t{config_.sample_tiles} * config_.tile_samples * (int64_t{config_.tiles} << config_.slices_log2);
  }

  Config config_;
  bool constant_weights_;
};

}  // namespace

Answer consider_sm90_stream(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Sm90Stream>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
