#include "kernels/cuda/depthwise/depthwise.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/depthwise/launch.hpp"
#include "kernels/cuda/depthwise/plan.hpp"
#include "kernels/cuda/executable.hpp"

namespace convnorm::cuda {

namespace {

using namespace depthwise;

const char* walk_name(Walk walk) {
  switch (walk) {
    case Walk::kSteps:
      return "in steps of the dilation, inputs in registers";
    case Walk::kVectors:
      return "a vector for every tap";
    case Walk::kWindow:
      return "a window of vectors";
    default:
      return "one value at a time";
  }
}

class Depthwise final : public CudaExecutable {
 public:
  Depthwise(const PlanRequest& request, const Config& config) : CudaExecutable(request), config_(config) {}

  void prepare() const override {
    if (config_.words() > 0) reserve_sync_slot(device_.ordinal, config_.words());
  }

  size_t workspace_bytes() const override { return 0; }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    const SharedPlan plan = shared_plan(c, problem_.k, static_cast<int>(element_size(problem_.dtype)));
    return {
        {"walk", walk_name(c.walk)},
        {"job", fmt::format("{} of {} positions, {} a row", c.piece, sizes_.l_out, c.pieces)},
        {"CTAs", fmt::format("{} in {} teams, {} domains of {} jobs, {} rounds", c.grid(), c.teams, c.domains,
                             c.domain_jobs, c.rounds)},
        {"held", fmt::format("{} jobs, {} times a domain", c.held, c.batches)},
        {"outputs", c.resident ? "formed once and kept in fp32" : "formed once more on their way to y"},
        {"shared memory", fmt::format("{} bytes", plan.bytes)},
        {"exchange", c.words() > 0 ? fmt::format("{} words", c.words()) : "none"},
    };
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_);
    const bool again = has_norm(problem_) && config_.batches > 1;
    const double x = static_cast<double>(sizes_.x_elements * element_size(problem_.dtype));
    return {.flops = (has_norm(problem_) && !config_.resident ? 2 : 1) * sizes_.flops,
            .min_bytes = least,
            .moved_bytes = least + (again ? x : 0)};
  }

  double expected_us() const override {
    // Measured on an H200: 9.5 us for 320,000 outputs of 31 products; of resident rows 13 and 19 for 6.6 million of 3.
    const bool once = config_.resident;
    const double kFixedUs = once ? 7 : 8, kOutputsPerUs = once ? 6e6 : 2.4e6, kProductsPerUs = once ? 2e7 : 1e7;
    constexpr double kBytesPerUs = 4.7e6;
    const double outputs = static_cast<double>(sizes_.z_elements);
    return kFixedUs + outputs / kOutputsPerUs + outputs * static_cast<double>(problem_.k) / kProductsPerUs +
           accounting().moved_bytes / kBytesPerUs;
  }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(sizes_.w_elements) * sizeof(float); }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    widen(weight, problem_.dtype, static_cast<float*>(packed_weight), sizes_.w_elements, stream);
  }

  void enqueue(const Arguments& arguments, void*, cudaStream_t stream) const override {
    SyncSlot slot{};
    if (config_.words() > 0) slot = sync_slot(device_.ordinal, stream, config_.words());
    launch_depthwise(arguments, config_, slot, stream);
  }

 private:
  Config config_;
};

}  // namespace

Answer consider_depthwise(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Depthwise>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
