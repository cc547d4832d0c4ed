// Host side of the one-wave kernel that needs no GPU: which tiles, which rings, or why not.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/sm90_onchip/config.hpp"

namespace convnorm::cuda::sm90_onchip {

// What may be fixed from outside, for tests and measurements; 0: the planner's choice.
struct Wishes {
  int tile_columns = 0;
  int warpgroups = 0;
  std::optional<bool> arranged = std::nullopt;
  std::optional<bool> shared_blocks = std::nullopt;
  bool raw_rows = true;  // inputs may be copied as they are
};

// A config, or one sentence that says why there is none.
std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes = {});

// Estimated cycles of a launch; what choose_config() minimises.
double estimated_cycles(const Problem& problem, const Config& config);

// Where inputs can be copied as they are, four neighbours at a time, has the rows of the tile be whole fours of them:
// as many as that takes, from one that begins a four on, before what its first tap reads. Beside `c.lead`, of chunks
// and fours nothing is said.
void lead_raw_rows(const Problem& problem, Config& config);

// 16-bit elements of the packed weight: [block][chunk][tap][k16][part][k8][64 rows][8 channels].
int64_t packed_elements(const Problem& problem, const Config& config);

}  // namespace convnorm::cuda::sm90_onchip
