// Host side of the depthwise kernel that needs no GPU: how rows are cut and dealt, or why not.
#pragma once

#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/depthwise/config.hpp"
#include "kernels/cuda/device.hpp"

namespace convnorm::cuda::depthwise {

// A config, or one sentence that says why there is none.
std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device);

}  // namespace convnorm::cuda::depthwise
