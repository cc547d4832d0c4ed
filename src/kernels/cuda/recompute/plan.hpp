// Chooses the numbers of the launch, or says why the recomputing kernels do not take a problem. Needs no GPU.
#pragma once

#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/recompute/config.hpp"

namespace convnorm::cuda::recompute {

std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device);

// Of a whole call, on an H200.
double expected_us(const Problem& problem, const Sizes& sizes, const Config& config);

}  // namespace convnorm::cuda::recompute
