// Host side of the moments kernels that needs no GPU: how the work is cut, or why they do not serve.
#pragma once

#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/moments/config.hpp"

namespace convnorm::cuda::moments {

// A config, or one sentence that says why there is none.
std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device);

// Of a whole call, on an H200.
double expected_us(const Problem& problem, const Sizes& sizes, const Config& config, const DeviceLimits& device);

}  // namespace convnorm::cuda::moments
