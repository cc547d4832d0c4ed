// The numbers of one launch, shared by planner and kernel.
//
// Columns are the inputs under the kernel: one for each (input channel of the conv group, tap); two of them, a pair,
// are what a register of mma.sync holds. Output channels are cut into blocks of 16 rows (those of mma.sync) whose rows
// all start at the same place within a sector of memory: channels whose numbers are equal modulo `classes`. With a glu
// a block holds 8 channels and, in its other rows, those that gate them. A set of blocks holds whole norm groups. A
// team of CTAs takes a set of one sample, a part of its positions each.
#pragma once

#include <cstdint>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/collective/slot.hpp"

namespace convnorm::cuda::recompute {

inline constexpr int kWarps = 8;  // of a CTA
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kPerSm = 2;       // CTAs: one stores while the other computes
inline constexpr int kBlockRows = 16;  // of mma.sync
inline constexpr int kPairsDeep = 8;   // of one mma.sync
inline constexpr int kMostColumns = 64;
inline constexpr int kQuad = 32;  // positions that a warp computes at a time
inline constexpr int kSectorBytes = 32;

struct Config {
  // Products. Of fp32 all three of two 16-bit parts, one behind the other as if they were columns.
  bool pairs_of_channels;  // the columns of a pair: two channels at one tap, else two taps of a channel
  int pairs;
  int parts;  // 16-bit parts of an operand: 2 for fp32
  int k16;    // mma.sync along the pairs of all products, as the instance has them

  int classes;         // of output channels
  int block_channels;  // of y in a block: 16, or 8 with a glu
  int range;           // neighbouring channels of y that hold whole norm groups
  int class_blocks;    // blocks of a class in a range
  int ranges;
  int set_blocks;  // of ranges, where norm groups are not single channels
  int sets;        // of a conv group
  int set_groups;  // norm groups in a set, rows where they are single channels; 0 where nothing is measured

  // Positions. A team shares those of a sample, a CTA takes its part a window at a time.
  int team;  // CTAs
  int teams;
  int rounds;
  int windows;         // of a CTA: 1 if x stays in shared memory between statistics and result
  int tiles;           // of a window
  int quads;           // of a warp in a tile
  int position_warps;  // 1, 2, 4 or 8 warps share a tile, the others take other blocks
  int width;           // inputs of a channel under a window

  CONVNORM_HOST_DEVICE int grid() const { return team * teams; }
  CONVNORM_HOST_DEVICE int products() const { return parts == 2 ? 3 : 1; }
  CONVNORM_HOST_DEVICE int range_blocks() const { return classes * class_blocks; }
  CONVNORM_HOST_DEVICE int blocks() const { return ranges * range_blocks(); }  // of a conv group
  CONVNORM_HOST_DEVICE int rows() const { return blocks() * kBlockRows; }
  CONVNORM_HOST_DEVICE int set_rows() const { return set_blocks * kBlockRows; }
  CONVNORM_HOST_DEVICE int set_channels() const { return set_blocks / range_blocks() * range; }  // of whole ranges
  CONVNORM_HOST_DEVICE int warp_positions() const { return quads * kQuad; }
  CONVNORM_HOST_DEVICE int tile() const { return position_warps * warp_positions(); }
  CONVNORM_HOST_DEVICE int window() const { return tiles * tile(); }
  CONVNORM_HOST_DEVICE int share() const { return windows * window(); }  // positions of a CTA
  // Words of a slot: moments of every CTA and group, for two rounds in turn.
  CONVNORM_HOST_DEVICE int64_t words() const { return team == 1 ? 0 : int64_t{2} * grid() * set_groups; }
  // Channel of y that row `in_block` of a block holds, or one that its gate gates.
  CONVNORM_HOST_DEVICE int channel_of(int block, int in_block) const {
    const int in_range = block % range_blocks();
    return block / range_blocks() * range + in_range / class_blocks +
           classes * (in_range % class_blocks * block_channels + in_block % block_channels);
  }
  // Row that holds channel `channel` of z; `gates`: the first channel that gates another one, 0 without a glu.
  CONVNORM_HOST_DEVICE int row_of(int channel, int gates) const {
    const bool gate = gates > 0 && channel >= gates;
    if (gate) channel -= gates;
    const int in_range = channel % range, in_class = in_range / classes;
    const int block = channel / range * range_blocks() + in_range % classes * class_blocks + in_class / block_channels;
    return block * kBlockRows + in_class % block_channels + (gate ? block_channels : 0);
  }
  // Behind the last of its range, such a row holds none.
  CONVNORM_HOST_DEVICE int end_of(int block, int channels) const {
    const int end = (block / range_blocks() + 1) * range;
    return end < channels ? end : channels;
  }
};

// The packed weight of all conv groups; byte offsets.
struct PackedPlan {
  int64_t operands;  // uint4 [conv group][block][k16][lane]: fragments of mma.sync
  int64_t sums;      // double [conv group][row][channel]: over the taps
  int64_t scales;    // float [conv group][row]: powers of two that the operands of a row were multiplied by
  int64_t bytes;
};

inline PackedPlan packed_plan(const Config& c, int64_t conv_groups, int64_t channels) {
  PackedPlan p{};
  p.sums = conv_groups * c.blocks() * c.k16 * 32 * 16;
  p.scales = p.sums + conv_groups * c.rows() * channels * 8;
  p.bytes = p.scales + conv_groups * c.rows() * 4;
  return p;
}

// What happens to a row's sum of products: sum * scale + plus.
struct alignas(8) Row {
  float scale, plus;
};

// What a row is given: of a channel, and the power of two that its operands were multiplied by.
struct alignas(16) RowParameters {
  float bias, gamma, beta, scale;
};

struct Norm {
  double mean, rstd;
};

// Of a window.
struct Range {
  float largest[kWarps];
  float scale;
};

// The one plan of shared memory; byte offsets.
struct SharedPlan {
  int groups;      // Slot [set_groups]: of this CTA
  int norms;       // Norm [set_groups]
  int constants;   // double [set_rows]: what a row's z is beside its sum of products
  int parameters;  // RowParameters [set_rows]
  int rows;        // Row [set_rows]
  int centres;     // float [kMostColumns]
  int range;       // Range
  int inputs;      // [part][channel or pair of channels][width]: words of two 16-bit numbers
  int part;        // bytes from the first parts to the second ones
  int staging;     // [warp][kBlockRows][row_pitch], or Slot [position warp][set_rows]
  int bytes;
};

CONVNORM_HOST_DEVICE inline int row_pitch(int warp_positions, int element_bytes) {
  return warp_positions * element_bytes + 64;  // 16-byte stores of a quarter of a warp then hit all banks
}

inline SharedPlan shared_plan(const Config& c, int64_t channels, int element_bytes) {
  const auto aligned = [](int64_t bytes) { return static_cast<int>((bytes + 15) / 16 * 16); };
  SharedPlan s{};
  s.groups = 16;  // the launch's first tag lies before
  s.norms = s.groups + aligned(int64_t{c.set_groups} * int64_t{sizeof(Slot)});
  s.constants = s.norms + c.set_groups * static_cast<int>(sizeof(Norm));
  s.parameters = aligned(s.constants + 8 * c.set_rows());
  s.rows = s.parameters + c.set_rows() * static_cast<int>(sizeof(RowParameters));
  s.centres = s.rows + c.set_rows() * static_cast<int>(sizeof(Row));
  s.range = s.centres + 4 * kMostColumns;
  s.inputs = aligned(s.range + int64_t{sizeof(Range)});
  s.part = aligned(4 * (c.pairs_of_channels ? channels / 2 : channels) * c.width);
  s.staging = s.inputs + c.parts * s.part;
  const int rows = kWarps * kBlockRows * row_pitch(c.warp_positions(), element_bytes);
  const int slots = c.position_warps * c.set_rows() * static_cast<int>(sizeof(Slot));
  s.bytes = s.staging + (rows > slots ? rows : slots);
  return s;
}

// Inputs under `positions` neighbouring positions.
CONVNORM_HOST_DEVICE inline int64_t inputs_under(const Arguments& a, int64_t positions) {
  return (positions - 1) * a.stride + a.dilation * (a.k - 1) + 1;
}

}  // namespace convnorm::cuda::recompute
