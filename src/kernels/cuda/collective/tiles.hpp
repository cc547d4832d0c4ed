// How the one-wave kernels for tensor cores divide a problem: plain values, chosen on the host (tiles.cpp) from the
// shape of a tile, received by the kernel.
//
//   tile     `warpgroups` blocks of 64 channels x `tile_columns` output columns: what one CTA holds in registers
//   column   (l, s): position l of sample s, samples fastest, `samples` of them per tile (1 for long L)
//   domain   the tiles that share normalisation groups; a team of CTAs computes one domain at a time
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/collective/divisor.hpp"

namespace convnorm::cuda {

inline constexpr int kBlockRows = 64;  // channels of a block, whose accumulators four warps hold: M of wgmma
inline constexpr int kWarpRows = 16;   // of them, those of a warp: M of mma.sync
inline constexpr int kMostRows = (1 << 14) - 1;  // of a chunk of x: the K step of wgmma's descriptors has 14 bits

struct Tiles {
  // Which tile a CTA has; the grid is (domain_column_tiles, teams, domain_row_tiles). Kernels need it first, and
  // parameters are fetched a line at a time.
  int domains;
  int teams;
  WideDivisor row_domains;  // ceil(row_tiles / domain_row_tiles)
  int domain_row_tiles;
  int row_tiles;            // along channels
  int column_tiles;         // along L; 1 if samples > 1
  int domain_column_tiles;  // all of them; 1 without a norm
  WideDivisor column_tile_divisor;
  int samples_log2;
  int samples;         // per tile: 1, 2, 4, 8 or 16
  int tile_positions;  // tile_columns / samples
  int warpgroups;      // blocks of a tile: 1, 2 or 4
  int warpgroups_log2;

  bool halves;  // with a glu: the second of two blocks lies half of the channels above the first, its gates

  // Groups, and 16-byte words to exchange; 0 words if every group lies in one block of one tile.
  int words_per_warpgroup;
  Divisor group_rows;  // channels of a group
  int team_ctas;
  int iterations;  // domains of a team

  bool staged;  // y goes through shared memory, because its rows do not start on sectors

  // Tiles of several samples of 8 or 16 outputs, such that a lane's values of one row and one class of columns are, or
  // become by an exchange with one other lane, eight neighbours in y (block_epilogue.cuh).
  bool lane_rows;

  // Tiles of one sample whose groups lie in 16 rows or are made of them: a warp takes its 16 rows from z to y without
  // waiting for its neighbours (warp_epilogue.cuh).
  bool by_warps;
  int piece_rows_log2;    // rows of a group in one warp's 16, its piece
  int group_pieces;       // pieces of a group in a column of tiles
  int participants;       // pieces of a group, those of all column tiles
  int gather_lanes_log2;  // lanes that read the words of one group
  int domain_groups;      // rounded up to whole tiles
  int last_columns;       // outputs of the last column tile
  int words;              // to exchange in one round; 0 if there is nothing to exchange

  // For the host.
  int tile_columns;
  int blocks;         // of 64 channels, rounded up to whole tiles
  int sample_blocks;  // ceil(N / samples)

  // Block i of a row tile, counted along channels, and back.
  CONVNORM_HOST_DEVICE int block_of(int row_tile, int i) const {
    return halves ? i * row_tiles + row_tile : (row_tile << warpgroups_log2) + i;
  }
  CONVNORM_HOST_DEVICE int place_of(int block) const {
    return halves ? (block >= row_tiles ? 1 : 0) : block & (warpgroups - 1);
  }
  CONVNORM_HOST_DEVICE int row_tile_of(int block) const {
    return halves ? block - place_of(block) * row_tiles : block >> warpgroups_log2;
  }

  CONVNORM_HOST_DEVICE int ctas() const { return teams * team_ctas; }
  CONVNORM_HOST_DEVICE bool exchanges() const { return words > 0; }
  int64_t exchange_words() const { return int64_t{iterations > 1 ? 2 : 1} * words; }
};

// x under a tile in shared memory: `stride` phases of phase_rows rows, row = position * samples + sample, in chunks of
// 16 * chunk_k16 channels.
struct Rows {
  bool plain_rows;    // a row is the next position: one sample, stride 1, zeros in the padding
  Divisor slot_rows;  // rows of a chunk
  int phase_rows;
  Divisor phase_row_divisor;
  int last_shift;            // positions by which the last tap is shifted
  int tap_shift, tap_phase;  // from one tap to the next: rows within a phase, phases
  int chunk_k16;
  int chunks;
  int slot_items;  // rows of eight channels in a chunk

  CONVNORM_HOST_DEVICE int rows() const { return static_cast<int>(slot_rows.value); }
};

// Where x lies, in the types in which kernels compute.
struct Input {
  const void* x;            // (N, C_in, L) or (N, L, C_in)
  const int64_t* lengths;   // (N); null if all samples are L long
  int64_t sample_elements;  // C_in * L
  int channels, length;     // C_in of a conv group, L
  int stride, pad_left;
  int channel_step, position_step;  // elements
  bool whole_items;                 // eight channels lie side by side and start on 16 bytes
};

inline Input input_of(const Arguments& a) {
  const bool channels_first = a.layout == CONVNORM_NCL;
  return {a.x,
          a.lengths,
          a.c * a.l,
          static_cast<int>(a.c_per_conv_group),
          static_cast<int>(a.l),
          static_cast<int>(a.stride),
          static_cast<int>(a.pad_left),
          static_cast<int>(channels_first ? a.l : 1),
          static_cast<int>(channels_first ? 1 : a.c),
          !channels_first && a.c_per_conv_group % 8 == 0 && reinterpret_cast<uintptr_t>(a.x) % 16 == 0};
}

// Regions of shared memory that the epilogue of a tile has, as byte offsets.
struct EpilogueRegions {
  int statistics;  // blocks x [64 rows][samples] x {mean, M2 and later rstd}
  int rows;        // blocks x [64 rows] x RowParameters
  int tasks;       // blocks x [128 threads] x 16 bytes: block_epilogue.cuh
  int staging;     // warps x rows of y on their way out
  int first_tag;   // 64 bits: number of the launch's first round

  int statistics_bytes;  // of a block
  int staging_bytes;     // of a warp

  int outputs;  // blocks x 4 warps x outputs of the tile's sample, where lengths are given: warp_epilogue.cuh

  // From byte `at` on, a multiple of 16, up to the returned one.
  int lay_out(const Tiles& tiles, int warps, int element_bytes, int at);
};

// Fills in all of `tiles`, whose warpgroups and tile_columns are given. `most_ctas` of them run at the same time on the
// device's `sm_count` SMs. Tiles of fewer columns than `least_by_warps` have no epilogue by warps. One sentence if
// there is no such division.
std::optional<std::string> divide_into_tiles(const Problem& problem, const Sizes& sizes, int most_ctas, Tiles& tiles,
                                             int least_by_warps = 128);

// All of `rows` but what is said of chunks. One sentence if a chunk would have more than 2^14 - 1 rows.
std::optional<std::string> lay_out_rows(const Problem& problem, const Sizes& sizes, const Tiles& tiles, Rows& rows);

// What no tile can mend, for kernels that compute in 32-bit positions and 16-bit channels.
std::optional<std::string> refuse_on_chip(const Problem& problem, const Sizes& sizes, bool takes_nlc);

// bfloat16 parts that an fp32 operand is split into; 1 for 16-bit ones.
int parts_of(const Problem& problem);
// Of their products, those that count.
constexpr int products_of(int parts) { return parts * (parts + 1) / 2; }

}  // namespace convnorm::cuda
