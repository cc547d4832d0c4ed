// Host side of the small-L kernel that needs no GPU: which tiles and slices, or why not.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/sm90_stream/config.hpp"

namespace convnorm::cuda::sm90_stream {

// What may be fixed from outside, for tests and measurements; 0 or kAny: the planner's choice.
struct Wishes {
  int k_slices = 0;
  int tile_samples = 0;
  bool no_cluster = false;  // statistics by words although a cluster could
};

// A config, or one sentence that says why there is none.
std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes = {});

// 16-bit elements of the packed weight; pack.cu has the layout.
int64_t packed_elements(const Problem& problem, const Config& config);

// Of a call.
double estimated_us(const Problem& problem, const Config& config, const DeviceLimits& device);

}  // namespace convnorm::cuda::sm90_stream
