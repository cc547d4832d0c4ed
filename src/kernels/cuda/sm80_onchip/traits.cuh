// The instances of the one-wave kernel for mma.sync: what is fixed at compile time, what a launch receives.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/sm80_onchip/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::sm80_onchip {

struct Parameters {
  Input input;
  Config config;
  SharedPlan plan;
  SyncSlot slot;
  Store store;
  Arguments arguments;
};

template <class ElementT, int kPartsT, int kColumnsT, bool kByWarpsT>
struct Traits {
  using Element = ElementT;
  using Operand = std::conditional_t<std::is_same_v<Element, __half>, __half, __nv_bfloat16>;
  using Parameters = sm80_onchip::Parameters;
  static constexpr int kParts = kPartsT;
  static constexpr int kColumns = kColumnsT;
  static constexpr bool kByWarps = kByWarpsT;  // the epilogue: warp_epilogue.cuh or block_epilogue.cuh
  static constexpr bool kLaneRows = false;     // the epilogue may write what Tiles::lane_rows says; more code spills
  static constexpr int kWordsAtOnce = 4;       // of a group's participants
  static constexpr int kCtasPerSm = ctas_by_registers(kColumns);
  static constexpr int kChunkK16 = chunk_k16_of(kParts);
  static constexpr int kItems = items_of(kParts);
  static constexpr int kAccumulators = kColumns / 2;  // of a thread and row tile
  static constexpr int kTiles8 = kColumns / 8;        // column tiles of 8, of which a thread holds a 2 x 2

  static_assert(kParts == 1 || std::is_same_v<Element, float>, "only fp32 is split");
  static_assert(kColumns == 64 || kColumns == 128);
};

}  // namespace convnorm::cuda::sm80_onchip
