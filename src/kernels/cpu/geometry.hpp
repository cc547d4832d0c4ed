// How the convolution of one problem is cut: chunks of the sum, strips of positions, tiles of packed weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "descriptor/problem.hpp"
#include "kernels/cpu/kernels.hpp"

namespace convnorm::cpu {

// Statistics are taken over at most this many neighbouring outputs of a row and merged in order, by every strategy, so
// that all of them give the same bits (moments, which infers its statistics, apart).
inline constexpr int64_t kStatisticsBlock = 512;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Part of the sum over (input channel, tap) of one conv group. Chunks follow one another channel-major; each is summed
// in registers from start to end, so they, and nothing else, fix the order of summation.
struct Chunk {
  int64_t channel, channels;
  int64_t tap, taps;
  int64_t steps_before;
};

// A run of output channels that is computed together. With a glu it comes with its partner, half the channels above.
struct Block {
  int64_t first, rows;
};

struct Geometry {
  // `block_rows`: output channels of a Block (of each half, with a glu).
  Geometry(const Problem& problem, const Kernels& kernels, int64_t block_rows);

  Problem problem;
  Sizes sizes;
  const Kernels* kernels;

  bool narrow;    // one row at a time over wide panels, for conv groups of one or two output channels
  int64_t panel;  // positions of a register tile
  int64_t steps;  // C_in/conv_groups * K
  int64_t channel_chunk, tap_chunk;
  int64_t strip;   // positions whose inputs are packed at once, a multiple of `panel`, at most kStatisticsBlock
  int64_t halves;  // 2 with a glu, else 1
  int64_t half;    // C_out / halves
  int64_t block_rows;

  // A packed row holds its inputs by phase, index modulo stride: phase f of channel c at c * x_row + f * phase_row.
  std::vector<int64_t> phases;      // those that some tap reads
  bool all_phases;                  // phases are 0 ... stride - 1
  std::vector<int64_t> tap_offset;  // of the taps of a chunk, relative to its first
  int64_t phase_row, x_row;
  int64_t line;  // inputs under a strip, contiguous; 0: phases are fetched one by one

  // Rows of x that need neither padding nor conversion nor dealing to phases may be read where they are. With many
  // input channels they are packed all the same: rows a power of two apart would share cache sets.
  bool reads_in_place() const {
    return problem.dtype == CONVNORM_F32 && problem.layout == CONVNORM_NCL && problem.stride == 1 && channel_chunk <= 4;
  }

  int64_t chunks() const { return channel_chunks * tap_chunks; }
  Chunk chunk(int64_t index) const;
  int64_t channel_chunks, tap_chunks;

  int64_t blocks() const { return ceil_div(half, block_rows); }
  Block block(int64_t index) const {
    const int64_t first = index * block_rows;
    return {first, std::min(block_rows, half - first)};
  }

  int64_t packed_floats() const { return problem.o * steps; }
  // Rows of one block and half: the part that lies in one conv group, from channel `o` on.
  int64_t segment_rows(int64_t o, int64_t end) const;
  void pack_block(const void* weight, Block block, float* packed) const;
};

}  // namespace convnorm::cpu
