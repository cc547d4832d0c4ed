// Host side of the kernel for samples in turn that needs no GPU: which tiles, which rings, or why not.
#pragma once

#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/sm90_in_turn/config.hpp"

namespace convnorm::cuda::sm90_in_turn {

// What may be fixed from outside, for tests and measurements; 0: the planner's choice.
struct Wishes {
  int held = 0;
  int chunk_k16 = 0;
};

// A config, or one sentence that says why there is none.
std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes = {});

// Estimated cycles of a launch; what choose_config() minimises.
double estimated_cycles(const Problem& problem, const Config& config);

}  // namespace convnorm::cuda::sm90_in_turn
