// The instances of the small-L kernel: what is fixed at compile time, and what a launch receives.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/sm90_stream/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::sm90_stream {

// kParts: 16-bit parts of which a value of x consists: 1 for 16-bit types; 2 or 3 for fp32, whose products are then
// three or six. kTaps as Config::taps. kStages: of every warp, all of them whole,
// and Tail::straight; 0: any number.
template <class ElementT, int kPartsT, int kTapsT, int kTiles8T, int kStagesT = 0>
struct Traits {
  static constexpr int kStages = kStagesT;
  template <int kOther>
  using WithStages = Traits<ElementT, kPartsT, kTapsT, kTiles8T, kOther>;
  using Element = ElementT;
  using Operand = std::conditional_t<std::is_same_v<Element, __half>, __half, __nv_bfloat16>;
  static constexpr int kTiles8 = kTiles8T;
  static constexpr int kParts = kPartsT;
  static_assert((kParts == 1) == (sizeof(Element) == 2));
  // Weights have as many parts, except that for three they stay fp32 until they are used: the bytes are those of two.
  static constexpr bool kWholeWeights = kParts == 3;
  static constexpr int kVectorsOfTap = kParts == 1 ? 1 : 2;  // of 16 bytes, a lane's
  static constexpr int kThreads = 32 * kWarps;

  // One reading of x serves all taps: each tap's sums are kept apart and shifted in the end where registers allow it,
  // else x is shifted for each tap.
  static constexpr bool kShifts = kTapsT > 0;
  static constexpr bool kShiftsSums = kShifts && kTiles8 <= 4;
  static constexpr bool kShiftsInputs = kShifts && !kShiftsSums;
  // A stage is what one load of x serves: a block of input channels, with all taps or with one.
  static constexpr int kStageTaps = kShifts ? kTapsT : 1;
  static constexpr int kWeightVectors = kStageTaps * kVectorsOfTap;

  // Of x, a lane holds kTiles8 positions of four channels. Two 16-bit positions share a word where they are loaded as
  // one; putting them together would wait for them.
  static constexpr bool kXPairs = kParts == 1 && kTiles8 > 1 && kShifts;
  static constexpr int kXWords = kXPairs ? kTiles8 / 2 : kTiles8;  // of one channel

  // Sums of a column tile that are added up in the end: of each tap, or of every other product, because products that
  // follow each other on one sum wait for each other.
  static constexpr int kSums = kShiftsSums ? kStageTaps : kTiles8 >= 4 ? 1 : 2;

  // Stages whose weights are on their way or in use, in registers; with few columns their inputs are beside them. What
  // a stage in use needs besides: its sums, its operands, and where weights are taken apart their parts.
  static constexpr bool kInputsAhead = kTiles8 <= 4;
  static constexpr int kInUse =
      4 * kSums * kTiles8 + 2 * kParts * kTiles8 + 4 * kXWords + (kWholeWeights ? 12 * kStageTaps : 0);
  static constexpr int kOfStage = 4 * kWeightVectors + (kInputsAhead ? 4 * kXWords : 0);
  static constexpr int kForStages = (kParts == 1 && kStages == 0 ? 216 : 224) - kInUse;  // registers
  static constexpr int kFittingDepth = kForStages / kOfStage;
  static constexpr int kMostDepth =  // each has code of its own; more than memory needs would be waited for as one
      kStages == 16                ? 5
      : kStages > 0 && kStages < 8 ? kStages
      : kTiles8 <= 2               ? 8
                                   : 4;
  static constexpr int kDepth = kFittingDepth < 1 ? 1 : kFittingDepth > kMostDepth ? kMostDepth : kFittingDepth;

  // Registers for Finish::Places while weights are on their way.
  static constexpr bool kPlacesAhead = kStages > 0 || kShiftsInputs;

  // Stages beyond those that may be on their way into L2: all warps' together are a fraction of it.
  static constexpr int kPrefetched = kPrefetchedBytes / (512 * kWeightVectors) + 1;

  // Where inputs are shifted, they pass through a ring of each warp's own in shared memory, in which each lane reads
  // only what it copied itself. Afterwards it takes the warp's sums.
  static constexpr int kXVector = kXWords < 4 ? kXWords : 4;  // words that are copied as one
  static constexpr int kStageBytes = kShiftsInputs ? 32 * 4 * 4 * kXWords : 0;
  static constexpr int kFitting = kShiftsInputs ? kMostRingBytes / (kWarps * kStageBytes) : 1;
  static constexpr int kXDepth = kFitting > 16 ? 16 : kFitting;
  static constexpr int kSumBytes = kTileRows * 8 * kTiles8 * 4;
  static constexpr int kRingBytes =
      kXDepth * kStageBytes > kSumBytes ? kXDepth* kStageBytes : kSumBytes;  // of one warp
  static_assert(!kShiftsInputs || kXDepth >= 2);
};

// A launch's parameters are new to the constant cache, and each line of 64 bytes that a thread touches makes it wait
// for hundreds of cycles. So they lie in the order of their use: Front is what the first copies need, and fits what is
// left of the line in which parameters begin; the lines of Tail are touched while the weights are on their way.
struct Front {
  const uint4* packed;  // [tile][block][tap][part][lane]
  const void* x;        // (N, C_in, L)
  int blocks, blocks_per_warp;
  int block_vectors;  // of `packed`
  int c, l;
  int16_t taps;
  uint16_t ring16;            // SharedPlan::ring / 16
  uint16_t expected_moments;  // that kMomentsBarrier waits for; 0 where nothing is sent
  uint8_t tile_samples, last_tile_samples;
  uint8_t k_slices_log2, slices_log2, positions_log2;
  bool alone;  // a CTA is a cluster by itself
};
static_assert(sizeof(Front) == 48);

__device__ __forceinline__ int ring_offset(const Front& f) { return f.ring16 * 16; }

// The first sample of this CTA's tile, and how many of its samples there are.
__device__ __forceinline__ int first_sample(const Front& f) { return static_cast<int>(blockIdx.z) * f.tile_samples; }
__device__ __forceinline__ int samples_of_tile(const Front& f) {
  return blockIdx.z + 1 < gridDim.z ? f.tile_samples : f.last_tile_samples;
}

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
  int received, moments;  // as SharedPlan
  int group_units, cluster_units;
  int group_channels;  // of a norm that comes right after the bias; else 0
  double eps;
  float inverse_count, eps_f32;  // for straight()
  uint8_t tile_channels, unit_rows, group_rows;
  uint8_t slices_log2, own_slices_log2;
  uint8_t group_lanes;  // summed by a butterfly: a group's in a unit, or a row's where group_rows is no power of two
  uint8_t merging_lanes, cluster;
  uint8_t exchange, param_dtype;
  uint8_t merged_by;  // where lanes hold kPerLane values of a group or none: distances of lanes that merge; else 0
  bool straight;      // Finish::straight() takes it
  bool even, has_norm, has_pre;
  bool y_vectors;  // a lane's positions of y may be stored as one vector
  bool slope_per_channel, pre_slope_per_channel;
  uint8_t post_count;
  void* y;                        // (N, C_out, L_out)
  const void* residual;           // as y
  const void *pre_slope, *slope;  // (1) or (C_out)
  const void* scale;              // (N, C_out), as shift
  const void* shift;
  TailOp post[CONVNORM_MAX_POST];
};

// Where a tap that is loaded by itself finds its inputs.
struct Steps {
  int stride, dilation, pad_left;
  convnorm_padding pad;
};

struct Parameters {
  Front front;
  Tail tail;
  Steps steps;
};

}  // namespace convnorm::cuda::sm90_stream
