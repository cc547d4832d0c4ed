#include "kernels/cuda/moments/moments.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace moments;

class Moments final : public CudaExecutable {
 public:
  Moments(const PlanRequest& request, const Config& config)
      : CudaExecutable(request),
        config_(config),
        packed_(packed_plan(config, problem_.conv_groups, sizes_.o_per_conv_group)),
        places_(workspace_plan(config, problem_.n, problem_.conv_groups, sizes_.c_per_conv_group)) {}

  size_t workspace_bytes() const override { return static_cast<size_t>(places_.bytes); }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    return {
        {"columns", fmt::format("{}, moments in {} slices of {} positions", c.columns, c.slices, c.slice())},
        {"products", c.parts == 2 ? "3 of scaled fp16 halves" : "1"},
        {"blocks",
         fmt::format("{} of {} channels, {} places within a sector", c.blocks(), c.block_channels, c.classes)},
        {"window", fmt::format("{} positions, {} a row, by {} warps", c.window(), c.windows, c.position_warps)},
        {"CTAs", std::to_string(problem_.n * problem_.conv_groups * c.windows * c.parts_of_blocks)},
    };
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_);
    const double units = static_cast<double>(problem_.n * problem_.conv_groups);
    const double x = static_cast<double>(sizes_.x_elements * element_size(problem_.dtype));
    return {.flops = sizes_.flops + units * static_cast<double>(sizes_.l_out) * config_.columns * (config_.columns + 1),
            .min_bytes = least,
            .moved_bytes = least + x,
            .workspace_bytes = static_cast<double>(places_.bytes),
            .tensor_cores = true};
  }

  double expected_us() const override {
    // Measured on an H200: three launches and the moments, then the instructions around each output; 66 us for 16
    // million outputs of 10 products, 259 for 131 million, 62 for 6 million of 14, 101 for 4 million of 60.
    constexpr double kFixedUs = 40, kProductsPerUs = 2.5e6, kOutputsPerUs = 6e5, kPerK16 = 1.5;
    const double positions = static_cast<double>(problem_.n * problem_.conv_groups * sizes_.l_out);
    return kFixedUs + positions * config_.columns * config_.columns / kProductsPerUs +
           static_cast<double>(sizes_.z_elements) / kOutputsPerUs * (1 + kPerK16 * (config_.k16 - 1));
  }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(packed_.bytes); }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    moments::pack(problem_arguments(problem_, sizes_), config_, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void* workspace, cudaStream_t stream) const override {
    const auto element = static_cast<int>(element_size(problem_.dtype));
    const Parameters p = {config_,
                          packed_,
                          places_,
                          static_cast<int>(inputs_under(arguments, config_.tile)),
                          static_cast<int>(inputs_under(arguments, positions_held(config_, element))),
                          static_cast<unsigned char*>(workspace),
                          arguments};
    launch_measure(p, stream);
    launch_channels(p, stream);
    launch_stream(p, stream);
  }

 private:
  Config config_;
  PackedPlan packed_;
  WorkspacePlan places_;
};

}  // namespace

Answer consider_moments(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Moments>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
