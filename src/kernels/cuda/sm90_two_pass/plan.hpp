// Host side of the two passes that needs no GPU: which tiles, which way, or why not.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/sm90_two_pass/config.hpp"

namespace convnorm::cuda::sm90_two_pass {

// What may be fixed from outside, for tests and measurements.
struct Wishes {
  std::optional<Width> width;
  std::optional<Way> way;
};

// A config, or one sentence that says why there is none.
std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes = {});

WorkspacePlan workspace_plan(const Problem& problem, const Config& config);

// Of all samples; what choose_config() minimises.
double estimated_us(const Problem& problem, const Sizes& sizes, const DeviceLimits& device, const Config& config);

}  // namespace convnorm::cuda::sm90_two_pass
