#include "kernels/cuda/sm90_in_turn/in_turn.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/sm90_in_turn/launch.hpp"
#include "kernels/cuda/sm90_in_turn/plan.hpp"
#include "kernels/cuda/sm90_onchip/launch.hpp"
#include "kernels/cuda/sm90_onchip/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace sm90_in_turn;

constexpr double kLaunchUs = 1.0, kClockGhz = 1.7;  // under load

class Sm90InTurn final : public CudaExecutable {
 public:
  Sm90InTurn(const PlanRequest& request, const Config& config) : CudaExecutable(request), config_(config) {}

  void prepare() const override {
    if (config_.exchanges()) reserve_sync_slot(device_.ordinal, config_.words);
  }

  size_t workspace_bytes() const override { return 0; }

  std::string packing() const override {
    return fmt::format("k16={},parts={},blocks={}", config_.chunk_k16, config_.parts, config_.blocks);
  }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    const SharedPlan plan(c, static_cast<int>(element_size(problem_.dtype)));
    return {
        {"tile",
         fmt::format("{} channels x {} columns, by one of {} warpgroups", kBlockRows * kBlocks, kColumns, kTurns)},
        {"products", std::to_string(products_of(c.parts))},
        {"x", fmt::format("{} slots for {} chunks of {} channels, {} rows, {} bytes each", c.x_slots, c.chunks,
                          16 * c.chunk_k16, c.rows(), plan.x_slot_bytes)},
        {"weights", c.resident ? fmt::format("stay, {} bytes", c.weight_slots * plan.stage_bytes)
                               : fmt::format("{} stages of {} bytes, {} a tile", c.weight_slots, plan.stage_bytes,
                                             c.stages_per_block())},
        {"shared memory", fmt::format("{} bytes", plan.bytes)},
        {"CTAs", fmt::format("{} in {} teams, {} domains, {} each, {} tiles of it", c.ctas(), c.teams, c.domains,
                             c.iterations, c.held)},
        {"exchange", c.exchanges() ? fmt::format("{} words", c.words) : "none"},
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

  double expected_us() const override { return kLaunchUs + estimated_cycles(problem_, config_) * 1e-3 / kClockGhz; }

 protected:
  size_t packed_weight_bytes() const override {
    return static_cast<size_t>(sm90_onchip::packed_elements(problem_, config_)) * 2;
  }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    sm90_onchip::pack(problem_, config_, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void*, cudaStream_t stream) const override {
    SyncSlot slot{};
    if (config_.exchanges()) slot = sync_slot(device_.ordinal, stream, config_.words);
    launch_in_turn(arguments, config_, slot, stream);
  }

 private:
  Config config_;
};

}  // namespace

Answer consider_sm90_in_turn(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Sm90InTurn>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
