// The numbers with which the one-wave kernel runs one problem: plain values, chosen on the host (plan.cpp), printed by
// explain(), received by the kernel. Tiles, columns and domains are those of collective/tiles.hpp.
//
//   chunk    16 * chunk_k16 input channels
//   x slot   one chunk of x under a tile, as 16-bit parts, in shared memory
//   stage    the weights of one block, one chunk and `stage_taps` taps: what the weight ring holds
#pragma once

#include "kernels/cuda/collective/tiles.hpp"

namespace convnorm::cuda::sm90_onchip {

// Bytes of one k16 step of a weight block and one part: two core-matrix columns of 64 rows of 16 bytes.
inline constexpr int kStepBytes = 2 * kBlockRows * 16;

// k16 steps of a chunk times parts, at most: instances have no code for more.
inline constexpr int kMostStepParts = 4;

// Which instances there are: narrow tiles and those of 136 columns cost a build more than products of one part of fp32
// (precision=medium), and those of three in 136 columns, are worth.
constexpr bool has_columns(bool f32, int parts, int columns) {
  return columns == 128 || !f32 || parts == 2 || (parts == 3 && columns == 64);
}

// The least columns that have the epilogue by warps.
constexpr int least_by_warps(bool f32, int parts) { return !f32 || parts == 2 ? 64 : 128; }

struct Config : Tiles, Rows {
  bool plain_fill;     // plain rows, and the tile's own first 64 or 128 positions are rows from pad_left on
  bool whole_samples;  // rows are those of whole samples with zeros beside them, as many as the tile has columns
  bool by_fours;       // refills may take four neighbouring inputs of a channel at a time
  int fours_shift;     // from the first four to the tile's first input
  Divisor fours;       // of a channel in a slot
  int x_slots;         // == chunks: x stays resident
  Divisor halo_rows;   // `beside`, at least 1

  // Weights.
  int stage_taps;
  int tap_groups;  // stages of a chunk
  int weight_slots;
  bool staggered;  // warpgroups compute one after the other instead of side by side
  int turn_chunk;  // with which the next one may start
  // A warpgroup that has taken a stage takes the next one `stage_step` slots on; all stages of one warpgroup's tile are
  // `block_slots` slots and an odd number of rounds of the ring if `block_parity`.
  int stage_step;
  int block_slots, block_parity;
  // Bytes of weights behind those that are copied which are asked into the second-level cache, 0 for none; `askers`
  // CTAs with the same weights share them.
  int ahead_bytes, askers;

  // Rows of x beside those that units copy: other tiles' positions, the last ones of 136 columns.
  int beside;

  // x is arranged by a launch of its own, as slots hold it (arrange.cu): of each row of eight channels its
  // `arranged_rows` rows from `arranged_row` on. All others are zeros in all tiles: those past a row of eight channels
  // are also those in front of the next one, and `zeros_behind` rows of them follow the last one.
  bool arranged;
  int arranged_row, arranged_rows, zeros_behind;

  bool shared_blocks;  // two warpgroups have the same 64 channels: each takes every second chunk, and the first adds up
  // All fills may copy inputs as they are, from `lead` of them before those of the first tap on.
  bool raw_rows;
  int lead;
  int first_shift, first_phase;  // of the first tap, behind the lead

  // For the host: which instance.
  int parts;  // 16-bit parts of an operand: 1, 2 or 3
  bool wide;  // instance with room for four warpgroups

  CONVNORM_HOST_DEVICE int stages_per_block() const { return chunks * tap_groups; }

  // Those that compute.
  CONVNORM_HOST_DEVICE int computing_warpgroups() const { return shared_blocks ? 2 * warpgroups : warpgroups; }

  // Bytes of the sums that a warpgroup of a shared block gives.
  int sums_bytes() const { return kBlockRows * tile_columns * static_cast<int>(sizeof(float)); }

  // Of a slot: parts times eights of channels, one behind the other; and the bytes of those that are arranged.
  CONVNORM_HOST_DEVICE int slot_eights() const { return parts * 2 * chunk_k16; }
  CONVNORM_HOST_DEVICE int arranged_chunk_bytes() const { return slot_eights() * arranged_rows * 16; }
  int64_t arranged_bytes() const { return int64_t{sample_blocks} * column_tiles * chunks * arranged_chunk_bytes(); }
};

// Regions and barriers of dynamic shared memory, as byte offsets.
struct SharedPlan : EpilogueRegions {
  int x;  // x_slots x [part][k8][row][8 channels]
  int x_slot_bytes;
  int x_part_bytes;
  int sums;     // of the second warpgroup of a shared block, in its first stage: [16-byte piece][128 threads]
  int weights;  // weight_slots x stage
  int stage_bytes;

  // Barriers of 8 bytes. Who arrives: what has then happened.
  int weights_full;   // [weight_slots] the copy engine: the stage is there
  int weights_empty;  // [weight_slots] the warpgroup that owns the stage: its products are done
  int x_full;    // [x_slots] all that write x, each by itself or by its warp, or the copy engine: the chunk is there
  int x_empty;   // [x_slots] all warpgroups: their products with the chunk are done
  int turn;      // [4], staggered only; the warps of the warpgroup before: it may start
  int prepared;  // all loader warps: `first_tag` and the parameters of the first tile's rows are there

  int bytes;

  SharedPlan(const Config& c, int element_bytes) {
    stage_bytes = c.stage_taps * c.chunk_k16 * c.parts * kStepBytes;
    x_part_bytes = 2 * c.chunk_k16 * c.rows() * 16;
    x_slot_bytes = c.parts * x_part_bytes;
    weights = 0;
    x = weights + c.weight_slots * stage_bytes;
    sums = weights + stage_bytes;
    weights_full = lay_out(c, 4 * c.warpgroups, element_bytes, x + c.x_slots * x_slot_bytes + 16 * c.zeros_behind);
    weights_empty = weights_full + 8 * c.weight_slots;
    x_full = weights_empty + 8 * c.weight_slots;
    x_empty = x_full + 8 * c.x_slots;
    turn = x_empty + 8 * c.x_slots;
    prepared = turn + 8 * 4;
    bytes = prepared + 8;
  }
};

}  // namespace convnorm::cuda::sm90_onchip
