// The instances of the one-wave kernel: what is fixed at compile time, what a launch receives, named barriers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/sm90_onchip/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda {

template <class T>
class Epilogue;
template <class T>
class WarpEpilogue;

}  // namespace convnorm::cuda

namespace convnorm::cuda::sm90_onchip {

// Where units of x go in the first fill of plain rows (x_loader.cuh): byte offsets in shared memory.
struct PlainFill {
  int first;            // of the tile's own positions, of unit 0
  int slot_bytes;       // from chunk to chunk
  int unit_bytes;       // from unit to unit of a chunk
  int second;           // from one region of a unit to the other
  int slot_units_log2;  // of a chunk
  int units;
};

// Where raw fours of a slot go (raw_rows.cuh), as byte offsets.
struct RawFill {
  int items;  // fours
  int units;  // of 32 of them
  int stride_log2;
  int group_bytes;  // from a four to that of the next channels
  int odd, upper;   // from its input 0 to 1, to 2
  int second;       // from the first to the second part, or eight channels
  int swapped;      // bits of a place in which lanes exchange theirs, if they do
};

// What a launch receives. What is needed first comes first: parameters are fetched a line at a time, and nothing else
// runs while the first loads wait for them.
struct Parameters {
  Input input;
  bool plain_fill;       // the config's, and x is aligned
  bool refill_by_units;  // that, or the tile has whole samples, which are vectors
  bool vectors_of_x;     // and its rows start on 16 bytes
  bool arranged;         // the config's: x comes from `arranged_x`
  int x_arrivals;        // at a slot of x
  PlainFill fill;
  bool fours_aligned;  // the config's fours are vectors of x
  Config config;
  SharedPlan plan;
  SyncSlot slot;
  Store store;
  unsigned char* arranged_x;  // [sample block][column tile][chunk][part][k8][arranged row][8 channels]
  Arguments arguments;
  bool raw_fill;  // the config's raw rows, and x is aligned
  RawFill raw;
};

template <class ElementT, int kPartsT, int kColumnsT, bool kWideT, bool kByWarpsT>
struct Traits {
  // What a launch receives, and what becomes of a tile: sm90_two_pass, whose tiles are computed alike, has its own.
  using Parameters = sm90_onchip::Parameters;
  using TileEpilogue = std::conditional_t<kByWarpsT, WarpEpilogue<Traits>, Epilogue<Traits>>;

  using Element = ElementT;
  using Operand = std::conditional_t<std::is_same_v<Element, __half>, __half, __nv_bfloat16>;
  static constexpr int kParts = kPartsT;
  static constexpr int kColumns = kColumnsT;
  static constexpr bool kWide = kWideT;
  static constexpr bool kByWarps = kByWarpsT;  // the epilogue: warp_epilogue.cuh or block_epilogue.cuh
  static constexpr int kMostWarpgroups = kWide ? 4 : 2;
  static constexpr int kProducerWarps = kWide ? 4 : 8;  // the first feeds weights, the others load x
  static constexpr int kLoaderWarps = kProducerWarps - 1;
  static constexpr bool kLaneRows = !kWide;     // the epilogue may write what Tiles::lane_rows says; more code spills
  static constexpr int kWordsAtOnce = 1;        // of a group's participants; beside more of them accumulators spill
  static constexpr bool kRowParameters = true;  // the epilogue takes them as row_parameters.cuh has them
  static constexpr bool kFours = false;         // refills take x by fours where they can
  static constexpr bool kArranged = kColumnsT == 64 && !kByWarpsT;  // x may be arranged by a launch before
  // Loader warps with units of their own run the first fill's code with the computing ones (fill_together()).
  static constexpr bool kFillsTogether = kByWarps && !kWide;
  // The first fill of plain rows: loader warps 0 to 2 fetch the halo, the computing warpgroups and the other four, if
  // there are any, the tile's own positions.
  static constexpr int kHaloWarps = 3;
  static constexpr bool kShared = kArranged;  // two warpgroups may share a block
  static constexpr int kPerSm = 1;            // CTAs
  static constexpr int kMostThreads = 128 * kMostWarpgroups + 32 * kProducerWarps;
  // A launch of 640 threads gets 96 registers each. They are the pool: the producer warpgroup gives up 32 of its own,
  // and each consumer takes 8.
  static constexpr int kConsumerRegisters = 104;
  static constexpr int kProducerRegisters = 64;
  static constexpr int kAccumulators = kColumns / 2;              // of a thread
  static constexpr int kTiles8 = kColumns / 8;                    // column tiles of 8, of which a thread holds a 2 x 2
  static constexpr int kUnitColumns = kColumns == 64 ? 64 : 128;  // whose positions of x are copied as vectors

  static_assert(kParts == 1 || std::is_same_v<Element, float>, "only fp32 is split");
  static_assert(kColumns == 64 || kColumns == 128 || (kColumns == 136 && kByWarps));
};

// Named barriers of the hardware.
enum class NamedBarrier : int {
  // + i: the threads of computing warpgroup i, or of the loader warps that make up one behind them
  kWarpgroup = kFirstBlockBarrier,
  // + i: the producers that initialise barriers, and warps 4 * i to 4 * i + 3, which wait for it
  kInitialised = 6,
  kProducers = 10,  // the producers among themselves
  kSumsGiven = 11,  // the warpgroups of a shared block: the second one's sums are there
};

}  // namespace convnorm::cuda::sm90_onchip
