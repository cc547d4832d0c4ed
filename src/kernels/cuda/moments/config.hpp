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
inline constexpr int kSide = 8;  // columns of a tile of products, those of mma.sync for doubles
inline constexpr int kDeep = 4;  // positions that one of them takes

// Column r of the moments; the one behind the last is all ones, and gives the sums.
CONVNORM_HOST_DEVICE constexpr int tiles_along(int columns) { return (columns + kSide) / kSide; }
// Where the second tile along has few columns, that of ones among them, two tiles hold all pairs: the first those of
// one of the first eight columns and one of the last eight, the second what is left, of columns that only one side has.
CONVNORM_HOST_DEVICE constexpr bool folds(int columns) {
  return columns + 1 > kSide && 2 * (columns + 1 - kSide) <= kSide;
}
// Else those of the upper triangle.
CONVNORM_HOST_DEVICE constexpr int tiles_of_products(int columns) {
  return folds(columns) ? 2 : tiles_along(columns) * (tiles_along(columns) + 1) / 2;
}
// Of products: what columns its sides have. Numbers past that of ones are no columns.
struct ProductTile {
  int columns;
  int number;
  int down, along;  // of the upper triangle

  CONVNORM_HOST_DEVICE constexpr ProductTile(int columns_, int number_)
      : columns(columns_), number(number_), down(0), along(number_) {
    for (int left = tiles_along(columns); !folds(columns) && along >= left; --left) along -= left, ++down;
    along += down;
  }
  CONVNORM_HOST_DEVICE constexpr int left(int i) const {
    if (!folds(columns)) return down * kSide + i;
    const int beyond = columns + 1 - kSide;
    return number == 0 || i < beyond ? i : i < 2 * beyond ? i - beyond + kSide : columns + 1;
  }
  CONVNORM_HOST_DEVICE constexpr int right(int j) const {
    if (!folds(columns)) return along * kSide + j;
    return number == 0 ? columns + 1 - kSide + j : left(j);
  }
  // Whether the record has the product of these columns from here.
  CONVNORM_HOST_DEVICE constexpr bool gives(int i, int j) const {
    return i <= j && j <= columns && !(folds(columns) && number == 1 && i < kSide && j >= kSide);
  }
};
// Where the sum of products of columns i <= j lies in the record of a slice.
CONVNORM_HOST_DEVICE constexpr int product_at(int i, int j, int columns) {
  return i * (columns + 1) - i * (i - 1) / 2 + j - i;
}

// Of the last launch, where it is result.cuh's: a tile is a block's rows by the positions of all warps.
inline constexpr int kResultPerSm = 2;     // CTAs
inline constexpr int kResultPlaces = 128;  // bytes of shared memory beside the plan's, at most
inline constexpr int kResultBuffers = 2;   // of tiles, each with a warp that sends off what the others compute
inline constexpr int kResultThreads = 32 * (kWarps + kResultBuffers);
CONVNORM_HOST_DEVICE constexpr int result_k16(int element_bytes) { return element_bytes == 4 ? 2 : 1; }
CONVNORM_HOST_DEVICE constexpr int result_quads(int element_bytes) { return 8 / element_bytes; }  // of a warp
CONVNORM_HOST_DEVICE constexpr int result_tile(int element_bytes) {                               // positions
  return kWarps * result_quads(element_bytes) * recompute::kQuad;
}
// From a row of a tile to the next, in bytes: 16-byte stores of a quarter of a warp hit all banks.
CONVNORM_HOST_DEVICE constexpr int result_pitch(int element_bytes) {
  return result_tile(element_bytes) * element_bytes + 64;
}

// How the last launch is cut where it is result.cuh's. A unit is a conv group of a sample.
struct ResultConfig {
  int window;      // positions, whole sectors of y, at most a tile; 0: the last launch is recompute's kernel
  int slices;      // CTAs that share the positions of a unit
  int set_blocks;  // of rows, of a CTA
  int sets;        // of a unit
  int width;       // inputs of a channel under a window
  int64_t apart, block_apart;  // from a row of a block, or a block of a class, to the next in y, in elements
};

struct Config {
  int columns;

  // Column moments: a CTA takes a slice of a sample's positions, `tile` at a time.
  int tile;
  int slice_tiles;
  int slices;

  // Channels: a CTA takes whole norm groups.
  int chunk_groups;
  int chunks;
  int channel_threads;

  recompute::Config stream;  // as of a convolution without norm
  ResultConfig result;

  bool dependent;  // the second and third launch begin before their predecessor ends

  CONVNORM_HOST_DEVICE int slice() const { return tile * slice_tiles; }
  // Threads of the second launch that share the slices of a value.
  CONVNORM_HOST_DEVICE int merge_parts() const { return record() < channel_threads ? channel_threads / record() : 1; }
  // Doubles of a slice: sums of products of all pairs of columns.
  CONVNORM_HOST_DEVICE int record() const { return product_at(columns, columns, columns) + 1; }
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

// Warps take tiles of products, each for one of these parts of a tile's positions.
CONVNORM_HOST_DEVICE constexpr int measure_parts(int columns) {
  const int tiles = tiles_of_products(columns);
  return tiles >= 2 * kWarps ? 1 : tiles >= kWarps / 2 ? 4 : 8;
}

// Bytes of shared memory of the two launches.
inline int64_t measure_bytes(const Config& c, int64_t inputs, int64_t width) {
  // 1.0 and 0.0, the products, the inputs.
  return 8 * (2 + int64_t{tiles_of_products(c.columns)} * measure_parts(c.columns) * kSide * kSide + inputs * width);
}
// Of one channel, between its moments and those of its group.
struct Channel {
  double constant;  // of z beside the sum of products and the bias
  double mean, m2;  // mean without the constant
  float scale;      // of its inputs
};
// What a channel is given.
struct Given {
  float bias, gamma, beta;
  float scale;          // power of two that its operands were multiplied by
  int conv_group, row;  // the last launch's
};
inline constexpr int kMostChannelThreads = 512;
inline constexpr int kLanesPerChannel = 16;
// Weights of a chunk that its CTA keeps in shared memory; there are more where groups have many channels and columns.
inline constexpr int64_t kMostStagedWeights = 12 << 10;
CONVNORM_HOST_DEVICE inline bool stages(const Config& c, int64_t channels) {
  return channels <= 512 && channels * c.columns <= kMostStagedWeights;
}
inline int64_t channels_bytes(const Config& c, int64_t group_channels) {
  const int64_t channels = c.chunk_groups * group_channels;
  // Pilots and means, the slices' sums, products of deviations; the channels, what they are given, weights.
  return 8 * (2 * kMostColumns + int64_t{c.merge_parts()} * c.record() + c.columns * c.columns) +
         channels *
             (int64_t{sizeof(Channel)} + (stages(c, channels) ? int64_t{sizeof(Given)} + int64_t{c.columns} * 4 : 0));
}

// Shared memory of the last launch, in byte offsets.
struct ResultPlan {
  int rows;    // recompute::Row [set_blocks][kBlockRows]
  int inputs;  // [part][channel or pair of channels][width]: words of two 16-bit numbers
  int part;    // bytes from the first parts to the second ones
  int tiles;   // [buffer][kBlockRows][pitch]; before them fp32 inputs as they stand, [channel][width]
  int bytes;
};
inline ResultPlan result_plan(const Config& c, int64_t channels, int element_bytes) {
  const auto aligned = [](int64_t bytes) { return static_cast<int>((bytes + 127) / 128 * 128); };
  const recompute::Config& stream = c.stream;
  ResultPlan s{};
  s.inputs = aligned(int64_t{c.result.set_blocks} * recompute::kBlockRows * int64_t{sizeof(recompute::Row)});
  s.part = aligned(4 * (stream.pairs_of_channels ? channels / 2 : channels) * c.result.width);
  s.tiles = s.inputs + stream.parts * s.part;
  const int raw = element_bytes == 4 ? aligned(4 * channels * c.result.width) : 0;
  const int tiles = kResultBuffers * recompute::kBlockRows * result_pitch(element_bytes);
  s.bytes = s.tiles + (raw > tiles ? raw : tiles);
  return s;
}

}  // namespace convnorm::cuda::moments
