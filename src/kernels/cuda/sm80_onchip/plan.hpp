// Host side of the one-wave kernel for mma.sync that needs no GPU: which tiles, or why not.
#pragma once

#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/sm80_onchip/config.hpp"

namespace convnorm::cuda::sm80_onchip {

// What may be fixed from outside, for tests and measurements; 0: the planner's choice.
struct Wishes {
  int tile_columns = 0;
};

// A config, or one sentence that says why there is none.
std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes = {});

// Estimated cycles of a launch; what choose_config() minimises.
double estimated_cycles(const Problem& problem, const Config& config, const DeviceLimits& device);

// 16-bit elements of the packed weight.
int64_t packed_elements(const Problem& problem, const Config& config);

}  // namespace convnorm::cuda::sm80_onchip
