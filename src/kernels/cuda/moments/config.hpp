// The numbers of the launches that take moments, shared by planner and kernels. Columns are the inputs under the
// kernel: one for each (input channel of the conv group, tap). What then makes y of x is recompute's kernel, with
// numbers of its own.
#pragma once

#include <cstdint>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/recompute/config.hpp"

namespace convnorm::cuda::moments {

inline constexpr int kWarps = 8;  // of a CTA
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kMostColumns = 64;
inline constexpr int kSide = 4;  // columns of a square of products

// Column r of the moments; the one behind the last is all ones, and gives the sums.
CONVNORM_HOST_DEVICE constexpr int squares_along(int columns) { return (columns + kSide) / kSide; }
CONVNORM_HOST_DEVICE constexpr int squares(int columns) {
  return squares_along(columns) * (squares_along(columns) + 1) / 2;
}
// Of squares counted along the upper triangle, row after row: the one at (row, column).
CONVNORM_HOST_DEVICE constexpr int square_at(int row, int column, int along) {
  return row * along - row * (row - 1) / 2 + column - row;
}
// Where the product of columns i <= j lies among the products of a slice.
CONVNORM_HOST_DEVICE constexpr int product_at(int i, int j, int along) {
  return square_at(i / kSide, j / kSide, along) * kSide * kSide + i % kSide * kSide + j % kSide;
}

inline constexpr int kMostAlong = squares_along(kMostColumns), kMostSquares = squares(kMostColumns);

struct Config {
  int columns;

  // Column moments: a CTA takes a slice of a sample's positions, `tile` at a time.
  int tile;
  int slice_tiles;
  int slices;

  // Channels: a CTA takes whole norm groups.
  int chunk_groups;
  int chunks;

  recompute::Config stream;  // as of a convolution without norm

  bool dependent;  // the second and third launch begin before their predecessor ends

  CONVNORM_HOST_DEVICE int slice() const { return tile * slice_tiles; }
  // Doubles of a slice: means, then products of deviations by squares.
  CONVNORM_HOST_DEVICE int record() const { return columns + squares(columns) * kSide * kSide; }
};

// The packed weight of all conv groups: recompute's, and at `plain` float [conv group][column][channel].
struct PackedPlan {
  recompute::PackedPlan stream;
  int64_t plain;
  int64_t bytes;
};

// What the launches hand to one another in the workspace; byte offsets.
struct WorkspacePlan {
  int64_t slices;  // double [sample][conv group][slice][record]
  int64_t inputs;  // float [sample][conv group][1 + C_in/conv_groups]: scale, then the centre of every channel
  int64_t rows;    // recompute::Row [sample][conv group][row]
  int64_t bytes;
};

inline PackedPlan packed_plan(const Config& c, int64_t conv_groups, int64_t inputs, int64_t channels) {
  PackedPlan p{};
  p.stream = recompute::packed_plan(c.stream, conv_groups, inputs);
  p.plain = p.stream.bytes;
  p.bytes = p.plain + conv_groups * c.columns * channels * 4;
  return p;
}

inline WorkspacePlan workspace_plan(const Config& c, int64_t samples, int64_t conv_groups, int64_t inputs) {
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  WorkspacePlan w{};
  w.inputs = aligned(samples * conv_groups * c.slices * c.record() * 8);
  w.rows = w.inputs + aligned(samples * conv_groups * (1 + inputs) * 4);
  w.bytes = w.rows + aligned(samples * conv_groups * c.stream.rows() * int64_t{sizeof(recompute::Row)});
  return w;
}

// Warps take squares of products, or `measure_parts` of a tile's positions for each where there are few.
CONVNORM_HOST_DEVICE constexpr int measure_parts(int columns) { return squares(columns) >= 4 * kWarps ? 1 : 4; }

// Bytes of shared memory of the two launches.
inline int64_t measure_bytes(const Config& c, int64_t inputs, int64_t width) {
  // 1.0 and 0.0, the products, the inputs.
  return 8 * (2 + int64_t{squares(c.columns)} * measure_parts(c.columns) * kSide * kSide + inputs * width);
}
// Of one channel, between its moments and those of its group.
struct Channel {
  double constant;  // of z beside the sum of products
  double mean, m2;  // mean without the constant
};
inline constexpr int kChannelThreads = 512;
inline constexpr int kStagedChannels = 128;  // whose weights a CTA of the second launch keeps, where it has no more
inline int64_t channels_bytes(const Config& c, int64_t group_channels) {
  const int64_t channels = c.chunk_groups * group_channels;
  // Means, the products; the channels; centres, the scale, weights.
  return 8 * (kMostColumns + int64_t{squares(c.columns)} * kSide * kSide) + channels * int64_t{sizeof(Channel)} +
         4 * (kMostColumns + 4 + (channels <= kStagedChannels ? c.columns * channels : 0));
}

}  // namespace convnorm::cuda::moments
