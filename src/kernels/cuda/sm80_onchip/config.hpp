// The numbers with which the one-wave kernel for mma.sync runs one problem: plain values, chosen on the host
// (plan.cpp), printed by explain(), received by the kernel. Tiles, columns and domains are those of
// collective/tiles.hpp.
//
//   chunk    16 or 32 input channels, whose x lies in one of two slots of shared memory
//   step     the products of one chunk and one tap
#pragma once

#include "kernels/cuda/collective/tiles.hpp"

namespace convnorm::cuda::sm80_onchip {

inline constexpr int kThreads = 128;
inline constexpr int kRowTiles = 2;  // 16-row tiles of a warp, one in each block
inline constexpr int kXSlots = 2;

// CTAs for which an SM has registers. The compiler is held to it, and the grid counts on it.
constexpr int ctas_by_registers(int tile_columns) { return tile_columns == 128 ? 2 : 3; }

// What a step takes of the channels, in units of 16: one product is over soon, so it is given more. And what a thread
// has of x on its way while it runs, in items.
constexpr int chunk_k16_of(int parts) { return parts == 1 ? 2 : 1; }
constexpr int items_of(int parts) { return parts == 1 ? 2 : 1; }

// Which instances there are. Products of one part of fp32 tensors (precision=medium) are given the one that takes every
// problem, and those of three parts no narrow tile: each costs a build half a minute.
constexpr bool has_columns(bool f32, int parts, int columns) { return columns == 128 || !f32 || parts == 2; }
constexpr bool has_warps(bool f32, int parts) { return !f32 || parts > 1; }

// Vectors of 16 bytes that one part of a weight has in a k16 step of 16 rows: one for each lane.
inline constexpr int kStepVectors = 32;

// Of one step's weights, for one warp.
constexpr int warp_stage_bytes(int parts) { return kRowTiles * chunk_k16_of(parts) * parts * kStepVectors * 16; }

struct Config : Tiles, Rows {
  int rounds;         // in which the threads load a chunk of x
  int weight_stages;  // 2 or 3: steps whose weights are on their way

  Divisor conv_group_tiles;  // row tiles that read the same channels of x

  // For the host.
  int parts;        // 16-bit parts of an operand: 1, 2 or 3
  int ctas_per_sm;  // at the same time
};

// Regions of dynamic shared memory, as byte offsets.
struct SharedPlan : EpilogueRegions {
  int x;  // kXSlots x [part][k8][row][8 channels]
  int x_slot_bytes;
  int x_part_bytes;
  int weights;  // weight_stages x [warp][row tile][k16][part][lane][8]
  int bytes;

  SharedPlan(const Config& c, int element_bytes) {
    x = 0;
    x_part_bytes = 2 * c.chunk_k16 * c.rows() * 16;
    x_slot_bytes = c.parts * x_part_bytes;
    weights = x + kXSlots * x_slot_bytes;
    const int end = weights + c.weight_stages * kThreads / 32 * warp_stage_bytes(c.parts);
    bytes = lay_out(c, kThreads / 32, element_bytes, end);
  }
};

}  // namespace convnorm::cuda::sm80_onchip
