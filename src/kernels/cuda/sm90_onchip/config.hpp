// The numbers with which the one-wave kernel runs one problem: plain values, chosen on the host (plan.cpp), printed by
// explain(), received by the kernel.
//
//   tile     `warpgroups` blocks of 64 channels x `tile_columns` output columns: what one CTA holds in registers
//   column   (l, s): position l of sample s, samples fastest, `samples` of them per tile (1 for long L)
//   chunk    16 * chunk_k16 input channels
//   x slot   one chunk of x under a tile, as 16-bit parts, in shared memory
//   stage    the weights of one block, one chunk and `stage_taps` taps: what the weight ring holds
//   domain   the tiles that share normalisation groups; a team of CTAs computes one domain at a time
#pragma once

#include <cstdint>

#include "kernels/cuda/collective/divisor.hpp"

#ifdef __CUDACC__
#define CONVNORM_HOST_DEVICE __host__ __device__
#else
#define CONVNORM_HOST_DEVICE
#endif

namespace convnorm::cuda::sm90_onchip {

inline constexpr int kBlockRows = 64;  // channels of a warpgroup: M of wgmma
inline constexpr int kWarpRows = 16;   // of them, those of a warp

// Bytes of one k16 step of a weight block and one part: two core-matrix columns of 64 rows of 16 bytes.
inline constexpr int kStepBytes = 2 * kBlockRows * 16;

// Bytes of shared memory that StagedRows of collective/store.cuh takes for a warp. One sample: 8 rows of 32 columns and
// a sector. Several: 8 rows of all columns, and for each sample a sector and the rounding up to a whole vector.
constexpr int staging_bytes(int element_bytes, int tile_columns, int samples) {
  return samples == 1 ? 8 * (32 * element_bytes + 32) : 8 * tile_columns * element_bytes + samples * (32 + 16);
}

struct Config {
  // Which tile a CTA has; the grid is (domain_column_tiles, teams, domain_row_tiles).
  int domains;
  int teams;
  WideDivisor row_domains;  // ceil(row_tiles / domain_row_tiles)
  int domain_row_tiles;
  int row_tiles;            // along channels
  int column_tiles;         // along L; 1 if samples > 1
  int domain_column_tiles;  // all of them; 1 without a norm
  int samples_log2;
  int tile_positions;  // tile_columns / samples

  // x under a tile: `stride` phases of phase_rows rows, row = position * samples + sample.
  bool plain_rows;    // a row is the next position: one sample, stride 1, zeros in the padding, no lengths
  bool plain_fill;    // and the tile's own positions are rows [pad_left, pad_left + tile_columns)
  bool by_fours;      // refills may take four neighbouring inputs of a channel at a time
  int fours_shift;    // from the first four to the tile's first input
  Divisor fours;      // of a channel in a slot
  int warpgroups;     // that compute: 1, 2 or 4
  int x_slots;        // == chunks: x stays resident
  int chunk_k16;      // chunks are 16 times as many channels
  int slot_items;     // rows of eight channels in a slot
  Divisor slot_rows;  // rows of a slot
  Divisor halo_rows;  // positions beside the tile's own
  int samples;        // per tile: 1, 2, 4, 8 or 16
  int phase_rows;
  Divisor phase_row_divisor;
  int chunks;

  // Weights.
  int stage_taps;
  int tap_groups;  // stages of a chunk
  int weight_slots;
  bool staggered;  // warpgroups compute one after the other instead of side by side
  // A warpgroup that has taken a stage takes the next one `stage_step` slots on; all stages of one warpgroup's tile are
  // `block_slots` slots and an odd number of rounds of the ring if `block_parity`.
  int stage_step;
  int block_slots, block_parity;
  int tap_shift, tap_phase;  // from one tap to the next: rows within a phase, phases

  // Groups, and 16-byte words to exchange; 0 words if every group lies in one warpgroup of one tile.
  int warpgroups_log2;
  int words_per_warpgroup;
  Divisor group_rows;  // channels of a group
  WideDivisor column_tile_divisor;
  int team_ctas;
  int iterations;  // domains of a team

  bool staged;  // y goes through shared memory, because its rows do not start on sectors

  // Tiles of one sample whose rows of y start on sectors, and whose groups lie in 16 rows or are made of them: a warp
  // takes its 16 rows from z to y without waiting for its neighbours (warp_epilogue.cuh).
  bool by_warps;
  int piece_rows_log2;    // rows of a group in one warp's 16, its piece
  int group_pieces;       // pieces of a group in a column of tiles
  int participants;       // pieces of a group, those of all column tiles
  int gather_lanes_log2;  // lanes that read the words of one group
  int domain_groups;      // rounded up to whole tiles
  int last_columns;       // outputs of the last column tile
  int words;              // to exchange in one round; 0 if there is nothing to exchange

  // For the host: which instance, and what the numbers above follow from.
  int parts;          // 16-bit parts of an operand: 1, 2 or 3
  int tile_columns;   // N of wgmma
  bool wide;          // instance with room for four warpgroups
  int last_shift;     // positions by which the last tap is shifted
  int blocks;         // of 64 channels, rounded up to whole tiles
  int sample_blocks;  // ceil(N / samples)

  CONVNORM_HOST_DEVICE int ctas() const { return teams * team_ctas; }
  CONVNORM_HOST_DEVICE int rows() const { return static_cast<int>(slot_rows.value); }
  CONVNORM_HOST_DEVICE bool exchanges() const { return words > 0; }
  int64_t exchange_words() const { return int64_t{iterations > 1 ? 2 : 1} * words; }
  CONVNORM_HOST_DEVICE int stages_per_block() const { return chunks * tap_groups; }
};

// Regions and barriers of dynamic shared memory, as byte offsets.
struct SharedPlan {
  int x;  // x_slots x [part][k8][row][8 channels]
  int x_slot_bytes;
  int x_part_bytes;
  int weights;     // weight_slots x stage
  int statistics;  // warpgroups x [64 rows][samples] x {mean, M2 and later rstd}
  int rows;        // warpgroups x [64 rows] x RowParameters
  int tasks;       // warpgroups x [128 threads] x 16 bytes: epilogue.cuh
  int staging;     // consumer warps x rows of y on their way out

  int stage_bytes;
  int statistics_bytes;  // of a warpgroup
  int staging_bytes;     // of a warp

  // Barriers of 8 bytes. Who arrives: what has then happened.
  int weights_full;   // [weight_slots] the copy engine: the stage is there
  int weights_empty;  // [weight_slots] the warpgroup that owns the stage: its products are done
  int x_full;         // [x_slots] every warp that writes x: the chunk is there
  int x_empty;        // [x_slots] all warpgroups: their products with the chunk are done
  int turn;           // [4], staggered only; the warps of the warpgroup before: it has all the stages that it needs
  int prepared;       // all loader warps: `first_tag` and the parameters of the first tile's rows are there
  int first_tag;      // 64 bits

  int bytes;

  SharedPlan(const Config& c, int element_bytes) {
    stage_bytes = c.stage_taps * c.chunk_k16 * c.parts * kStepBytes;
    x_part_bytes = 2 * c.chunk_k16 * c.rows() * 16;
    x_slot_bytes = c.parts * x_part_bytes;
    statistics_bytes = kBlockRows * c.samples * 8;
    staging_bytes = c.staged ? sm90_onchip::staging_bytes(element_bytes, c.tile_columns, c.samples) : 0;
    weights = 0;
    x = weights + c.weight_slots * stage_bytes;
    statistics = x + c.x_slots * x_slot_bytes;
    rows = statistics + c.warpgroups * statistics_bytes;
    tasks = rows + c.warpgroups * kBlockRows * 16;
    staging = tasks + c.warpgroups * 128 * 16;
    weights_full = staging + c.warpgroups * 4 * staging_bytes;
    weights_empty = weights_full + 8 * c.weight_slots;
    x_full = weights_empty + 8 * c.weight_slots;
    x_empty = x_full + 8 * c.x_slots;
    turn = x_empty + 8 * c.x_slots;
    prepared = turn + 8 * 4;
    first_tag = prepared + 8;
    bytes = first_tag + 8;
  }
};

}  // namespace convnorm::cuda::sm90_onchip
