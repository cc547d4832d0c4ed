// The instances of the small-L kernel: what is fixed at compile time, and what a launch receives.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/sm90_stream/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::sm90_stream {

// kTaps as Config::taps.
template <class ElementT, int kTapsT, int kTiles8T>
struct Traits {
  using Element = ElementT;
  using Operand = std::conditional_t<std::is_same_v<Element, __half>, __half, __nv_bfloat16>;
  static constexpr bool kShifts = kTapsT > 0;
  static constexpr int kParts = sizeof(Element) == 4 ? 2 : 1;
  static constexpr int kTiles8 = kTiles8T;
  static constexpr int kThreads = 32 * kWarps;

  // A stage is what one load of x serves: a block of input channels, with all taps or with one.
  static constexpr int kStageTaps = kShifts ? kTapsT : 1;
  static constexpr int kWeightVectors = kStageTaps * kParts;  // of 16 bytes, a lane's

  // Of x, a lane holds kTiles8 positions of four channels. Two 16-bit positions share a word.
  static constexpr int kXWords = kParts == 2 ? kTiles8 : kTiles8 > 1 ? kTiles8 / 2 : 1;  // of one channel
  static constexpr int kXVector = kXWords < 4 ? kXWords : 4;                             // words that are copied as one

  // Each warp has a ring of its own in shared memory, in which each lane reads only what it copied itself. The ring
  // serves as registers for loads in flight, of which there are not enough; afterwards it takes the warp's sums.
  static constexpr int kWeightBytes = 32 * 16 * kWeightVectors;
  static constexpr int kStageBytes = kWeightBytes + (kShifts ? 32 * 4 * 4 * kXWords : 0);
  static constexpr int kFitting = kMostRingBytes / (kWarps * kStageBytes);
  static constexpr int kDepth = kFitting > 16 ? 16 : kFitting;
  static constexpr int kRingBytes = kDepth * kStageBytes;  // of one warp
  static_assert(kDepth >= 2 && kRingBytes >= kTileRows * 8 * kTiles8 * 4);

  // Sums that are added up in the end: products that follow each other on one sum would wait for each other.
  static constexpr int kSums = kTiles8 >= 4 ? 1 : kTiles8 == 2 || !kShifts ? 2 : 5;
};

// A launch's parameters are new to the constant cache, and each line of 64 bytes that a thread touches makes it wait
// for hundreds of cycles. So they lie in the order of their use: Front is what the first copies need, and fits what is
// left of the line in which parameters begin; the lines of Tail are touched while the weights are on their way.
struct Front {
  const uint4* packed;  // [tile][block][tap][part][lane]
  const void* x;        // (N, C_in, L)
  int c, l;
  int blocks, blocks_per_warp;
  int row_tiles;  // tiles of a row of the grid
  int ring;       // as SharedPlan
  int16_t taps;
  uint8_t n;
  uint8_t k_slices_log2;
  uint8_t positions_log2;
  bool weights_first;  // requested before x, and before waiting for the kernel before this one
};
static_assert(sizeof(Front) == 48);

// An op after the norm, and what it reads.
struct TailOp {
  int op;
  float param;
};

struct Tail {
  const PackedHeader* header;
  uint64_t fingerprint;
  const void* bias;  // (C_out), as gamma and beta; null where the problem has none
  const void* gamma;
  const void* beta;
  SyncSlot slot;  // of Exchange::kWords
  int o, l_out;
  int sums_expected, moments_expected;  // as SharedPlan
  int received, moments;                // as SharedPlan
  int group_units, cluster_units;
  float eps;
  uint8_t tile_channels, unit_rows, group_rows;
  uint8_t slices_log2, own_slices_log2;
  uint8_t group_lanes;  // summed by a butterfly: a group's in a unit, or a row's where group_rows is no power of two
  uint8_t merging_lanes, cluster;
  uint8_t exchange, param_dtype;
  bool even, has_norm, has_pre;
  bool y_vectors;  // a lane's positions of y may be stored as one vector
  bool slope_per_channel;
  uint8_t post_count;
  void* y;               // (N, C_out, L_out)
  const void* residual;  // as y
  const void* slope;     // (1) or (C_out)
  const void* scale;     // (N, C_out), as shift
  const void* shift;
  TailOp post[CONVNORM_MAX_POST];
};

struct Parameters {
  Front front;
  Tail tail;
  Arguments arguments;  // for what is rare
};

}  // namespace convnorm::cuda::sm90_stream
