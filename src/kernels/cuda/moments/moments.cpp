#include "kernels/cuda/moments/moments.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/plan.hpp"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/recompute/launch.hpp"
#include "kernels/cuda/recompute/plan.hpp"

namespace convnorm::cuda {

namespace {

using namespace moments;

class Moments final : public CudaExecutable {
 public:
  Moments(const PlanRequest& request, const Config& config)
      : CudaExecutable(request),
        config_(config),
        packed_(packed_plan(config, problem_.conv_groups, sizes_.c_per_conv_group, sizes_.o_per_conv_group)),
        places_(workspace_plan(config, problem_.n, problem_.conv_groups, sizes_.c_per_conv_group)),
        shared_(recompute::shared_plan(config.stream, sizes_.c_per_conv_group,
                                       static_cast<int>(element_size(problem_.dtype)))) {}

  size_t workspace_bytes() const override { return static_cast<size_t>(places_.bytes); }

  std::vector<std::pair<std::string, std::string>> config() const override {
    const Config& c = config_;
    const recompute::Config& stream = c.stream;
    std::vector<std::pair<std::string, std::string>> lines = {
        {"columns", fmt::format("{}, moments in {} slices of {} positions", c.columns, c.slices, c.slice())},
        {"products", stream.parts == 2 ? "3 of scaled fp16 halves" : "1"},
        {"blocks", fmt::format("{} of {} channels, {} places within a sector, {} sets", stream.blocks(),
                               stream.block_channels, stream.classes, stream.sets)},
    };
    if (const ResultConfig& r = c.result; r.window > 0) {
      lines.emplace_back("CTAs", fmt::format("{} with {} blocks each",
                                             problem_.n * problem_.conv_groups * r.sets * r.slices, r.set_blocks));
      lines.emplace_back("window", fmt::format("{} positions", r.window));
    } else {
      lines.emplace_back("CTAs", fmt::format("{} in {} teams, {} rounds", stream.grid(), stream.teams, stream.rounds));
      lines.emplace_back("window", fmt::format("{} positions, {} a CTA, by {} warps", stream.window(), stream.windows,
                                               stream.position_warps));
    }
    return lines;
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

  double expected_us() const override { return moments::expected_us(problem_, sizes_, config_, device_); }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(packed_.bytes); }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    moments::pack(problem_arguments(problem_, sizes_), config_, weight, packed_weight, stream);
  }

  void enqueue(const Arguments& arguments, void* workspace, cudaStream_t stream) const override {
    auto* bytes = static_cast<unsigned char*>(workspace);
    const auto measured_width = static_cast<int>(recompute::inputs_under(arguments, config_.tile));
    const Parameters p = {config_, packed_, places_, measured_width, bytes, arguments};
    launch_measure(p, stream);
    launch_channels(p, stream);
    const recompute::Given given = {reinterpret_cast<const recompute::Row*>(bytes + places_.rows),
                                    reinterpret_cast<const float*>(bytes + places_.inputs), config_.dependent};
    if (config_.result.window > 0) {
      const ResultPlan plan =
          result_plan(config_, sizes_.c_per_conv_group, static_cast<int>(element_size(problem_.dtype)));
      return launch_result({config_.stream, packed_.stream, config_.result, plan, arguments, given}, stream);
    }
    recompute::launch_recompute({config_.stream, packed_.stream, shared_, {}, arguments, given}, stream);
  }

 private:
  Config config_;
  PackedPlan packed_;
  WorkspacePlan places_;
  recompute::SharedPlan shared_;
};

}  // namespace

Answer consider_moments(const PlanRequest& request) {
  auto answer = choose_config(request.problem, request.sizes, *request.gpu);
  if (auto* reason = std::get_if<std::string>(&answer)) return Refusal{std::move(*reason)};
  return std::make_unique<Moments>(request, std::get<Config>(answer));
}

}  // namespace convnorm::cuda
