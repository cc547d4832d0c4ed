// The instances of the kernel for samples in turn: what is fixed at compile time, what a launch receives.
#pragma once

#include "kernels/cuda/sm90_in_turn/walk.cuh"
#include "kernels/cuda/sm90_onchip/traits.cuh"

namespace convnorm::cuda::sm90_in_turn {

struct Parameters {
  Input input;
  Config config;
  SharedPlan plan;
  SyncSlot slot;
  Store store;
  int x_arrivals;      // at a slot of x
  bool raw_fill;       // the config's raw rows, and x is aligned
  bool fours_aligned;  // and its fours are vectors
  sm90_onchip::RawFill raw;
  int tap_rows[kMostTaps];  // from the first row of a slot to that of the first output under a tap
  Arguments arguments;
};

template <class ElementT, int kPartsT>
struct Traits {
  using Parameters = sm90_in_turn::Parameters;
  using Walk = TurnWalk;
  using Element = ElementT;
  using Operand = std::conditional_t<std::is_same_v<Element, __half>, __half, __nv_bfloat16>;
  static constexpr int kParts = kPartsT;
  static constexpr int kColumns = sm90_in_turn::kColumns;
  static constexpr int kAccumulators = kColumns / 2;  // of a thread and a block
  static constexpr int kTiles8 = kColumns / 8;
  static constexpr int kTileWarps = 4 * kBlocks;  // parts of 16 rows, of which a warp has one of every block
  static constexpr int kThreads = 128 * kTurns + 32 * sm90_in_turn::kLoaderWarps;
  // A launch of 512 threads has 128 each.
  static constexpr int kConsumerRegisters = 152;
  static constexpr int kProducerRegisters = 56;

  // For sm90_onchip's loader of x.
  static constexpr bool kWide = false, kByWarps = true, kFours = false, kSwapsPlaces = true;
  static constexpr int kUnitColumns = 64, kHaloWarps = 0, kLoaderWarps = sm90_in_turn::kLoaderWarps;

  static_assert(kParts == 1 || std::is_same_v<Element, float>, "only fp32 is split");
};

}  // namespace convnorm::cuda::sm90_in_turn
