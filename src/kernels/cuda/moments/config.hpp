// The numbers of the three launches, shared by planner and kernels.
//
// Columns are the inputs under the kernel: one for each (input channel of the conv group, tap). Output channels are cut
// into blocks of 16 rows (the rows of mma.sync), and a block's rows all start at the same place within a sector of
// memory: channels whose numbers are equal modulo `classes`. With a glu a block holds 8 channels and, in its other
// rows, those that gate them.
#pragma once

#include <cstdint>

#include "kernels/cuda/arguments.hpp"

namespace convnorm::cuda::moments {

inline constexpr int kWarps = 8;  // of a CTA
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kBlockRows = 16;  // of mma.sync
inline constexpr int kDepth = 16;      // columns of one mma.sync
inline constexpr int kMostColumns = 64;
inline constexpr int kQuad = 32;  // positions that a warp computes at a time
inline constexpr int kSectorBytes = 32;
inline constexpr int kPerSm = 2;  // CTAs of the last launch that the registers suffice for
inline constexpr int kSide = 4;   // columns of a square of products

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
  int k16;    // mma.sync along the columns: 1, 2 or 4
  int parts;  // 16-bit parts of an operand: 2 for fp32

  int classes;         // of output channels
  int class_blocks;    // blocks of a class
  int block_channels;  // of y in a block: 16, or 8 with a glu

  // Column moments: a CTA takes a slice of a sample's positions, `tile` at a time.
  int tile;
  int slice_tiles;
  int slices;

  // Channels: a CTA takes whole norm groups.
  int chunk_groups;
  int chunks;

  // The result: a CTA takes a window of positions and a part of the blocks. Its warps share the window first.
  int quads;           // of a warp's positions
  int position_warps;  // 1, 2, 4 or 8
  int parts_of_blocks;
  int64_t windows;  // of a row

  bool dependent;  // the second and third launch begin before their predecessor ends

  CONVNORM_HOST_DEVICE int blocks() const { return classes * class_blocks; }  // of a conv group
  CONVNORM_HOST_DEVICE int rows() const { return blocks() * kBlockRows; }
  CONVNORM_HOST_DEVICE int slice() const { return tile * slice_tiles; }
  CONVNORM_HOST_DEVICE int warp_positions() const { return quads * kQuad; }
  CONVNORM_HOST_DEVICE int window() const { return position_warps * warp_positions(); }
  // Doubles of a slice: means, then products of deviations by squares.
  CONVNORM_HOST_DEVICE int record() const { return columns + squares(columns) * kSide * kSide; }
};

// The packed weight of all conv groups; byte offsets.
struct PackedPlan {
  int64_t operands;  // uint4 [conv group][block][k16][part][lane]: fragments of mma.sync
  int64_t scales;    // float [conv group][row]: powers of two that the operands of a row were multiplied by
  int64_t plain;     // float [conv group][column][channel]
  int64_t bytes;
};

// What the launches hand to one another in the workspace; byte offsets.
struct WorkspacePlan {
  int64_t slices;  // double [sample][conv group][slice][record]
  int64_t inputs;  // float [sample][conv group][1 + C_in/conv_groups]: scale, then the centre of every channel
  int64_t rows;    // Row [sample][conv group][row]
  int64_t bytes;
};

// What happens to a row's sum of products: (sum + shift) * scale + plus.
struct alignas(16) Row {
  float shift, scale, plus, unused;
};

inline PackedPlan packed_plan(const Config& c, int64_t conv_groups, int64_t channels) {
  PackedPlan p{};
  p.scales = conv_groups * c.blocks() * c.k16 * c.parts * 32 * 16;
  p.plain = p.scales + conv_groups * c.rows() * 4;
  p.bytes = p.plain + conv_groups * c.columns * channels * 4;
  return p;
}

inline WorkspacePlan workspace_plan(const Config& c, int64_t samples, int64_t conv_groups, int64_t inputs) {
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  WorkspacePlan w{};
  w.inputs = aligned(samples * conv_groups * c.slices * c.record() * 8);
  w.rows = w.inputs + aligned(samples * conv_groups * (1 + inputs) * 4);
  w.bytes = w.rows + aligned(samples * conv_groups * c.rows() * int64_t{sizeof(Row)});
  return w;
}

// Inputs under `positions` neighbouring positions.
CONVNORM_HOST_DEVICE inline int64_t inputs_under(const Arguments& a, int64_t positions) {
  return (positions - 1) * a.stride + a.dilation * (a.k - 1) + 1;
}

// Warps take squares of products, or `measure_parts` of a tile's positions for each where there are few.
CONVNORM_HOST_DEVICE constexpr int measure_parts(int columns) { return squares(columns) >= 4 * kWarps ? 1 : 4; }

// Bytes of shared memory of the three launches.
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
CONVNORM_HOST_DEVICE inline int row_pitch(int warp_positions, int element_bytes) {
  return warp_positions * element_bytes + 64;  // 16-byte stores of a quarter of a warp then hit all banks
}
CONVNORM_HOST_DEVICE inline int64_t staging_bytes(const Config& c, int element_bytes) {
  return int64_t{kWarps} * kBlockRows * row_pitch(c.warp_positions(), element_bytes);
}
// Positions of a window, and those before it that make rows start on sectors.
CONVNORM_HOST_DEVICE inline int positions_held(const Config& c, int element_bytes) {
  return c.window() + kSectorBytes / element_bytes;
}
inline int64_t stream_bytes(const Config& c, int64_t inputs, int64_t width, int element_bytes) {
  return staging_bytes(c, element_bytes) + inputs * width * 4;
}

}  // namespace convnorm::cuda::moments
