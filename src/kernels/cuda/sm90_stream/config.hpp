// The numbers of one launch, shared by planner and kernel.
//
// A tile is up to 16 output channels of `tile_samples` samples; `k_slices` CTAs share one, each with a part of the
// input channels. The columns of a tile are (sample, position), positions fastest, both padded to powers of two.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/arguments.hpp"

namespace convnorm::cuda::sm90_stream {

inline constexpr int kTileRows = 16;              // output channels of a tile: the rows of mma.sync
inline constexpr int kBlockInputs = 16;           // input channels of a block: the depth of mma.sync
inline constexpr int kMostSamples = 8;            // of a tile
inline constexpr int kMostTiles8 = 16;            // column tiles of 8
inline constexpr int kMostTiles8OfSix = 4;        // with six products
inline constexpr int kFewestInputs = 16;          // C_in * K
inline constexpr int kFewestInputsOfHalves = 64;  // below, halves of fp32 would show: six products
inline constexpr int kPerLane = 4;                // positions that a lane finishes
inline constexpr int kMostCluster = 8;            // larger ones do not fill the chip
inline constexpr int kWarps = 8;                  // of a CTA

// How the CTAs of a group tell each other their statistics.
enum class Exchange : int {
  kNone,     // each group lies in one unit
  kCluster,  // stores into each other's shared memory
  kWords     // words in global memory; needs a cooperative launch
};

struct Config {
  int parts;           // 16-bit parts of a value of x: 1, or for fp32 2 (three products) or 3 (six)
  int taps;            // 3 or 5: x is loaded once and shifted in registers. 0: loaded once per tap
  int tiles8;          // column tiles of 8: 1, 2, 4, 8 or 16
  int positions_log2;  // of one sample, padded; at least kPerLane
  int tile_channels;   // at most kTileRows
  int tiles;           // beside each other in the output channels
  int tile_samples;    // at most kMostSamples
  int sample_tiles;    // one after the other in the samples; all read the same weights
  int k_slices_log2;   // CTAs of a tile
  int blocks;          // of input channels
  int blocks_per_warp;
  int row_tiles;      // of a row of the grid: those of one group, or all
  int cluster_tiles;  // tiles whose CTAs form a cluster
  Exchange exchange;
  bool even;  // all units of a group have the same number of values

  // What one warp finishes is a unit: one of 2^slices_log2 slices of a tile's rows, one sample. It lies in the CTA
  // slice / (slices / k_slices) of its tile.
  int slices_log2;
  int group_rows;     // rows of a unit that share a group
  int group_units;    // units of one group and sample
  int merging_lanes;  // that merge the statistics of these units: a power of two, at most 32

  CONVNORM_HOST_DEVICE int products() const { return parts * (parts + 1) / 2; }
  // 16-byte vectors of a lane's weights for one block and tap. Three parts are formed from fp32 when they are used.
  CONVNORM_HOST_DEVICE int vectors_of_tap() const { return parts == 1 ? 1 : 2; }
  CONVNORM_HOST_DEVICE int k_slices() const { return 1 << k_slices_log2; }
  CONVNORM_HOST_DEVICE int slices() const { return 1 << slices_log2; }
  CONVNORM_HOST_DEVICE int own_slices() const { return 1 << (slices_log2 - k_slices_log2); }  // of a CTA
  CONVNORM_HOST_DEVICE int unit_rows() const { return kTileRows >> slices_log2; }
  CONVNORM_HOST_DEVICE int lanes_per_row_log2() const { return 1 + slices_log2; }
  CONVNORM_HOST_DEVICE int columns() const { return 8 * tiles8; }
  CONVNORM_HOST_DEVICE int cluster() const { return cluster_tiles << k_slices_log2; }
  CONVNORM_HOST_DEVICE int grid() const { return sample_tiles * tiles << k_slices_log2; }
  CONVNORM_HOST_DEVICE int cluster_units() const { return cluster_tiles << slices_log2; }  // of one sample

  // Whether all lanes of a unit hold values of one group, if need be each value as often: Finish::straight() takes
  // that, where a norm comes right after the bias.
  bool straight(int64_t l_out) const {
    return l_out % kPerLane == 0 && (l_out & (l_out - 1)) == 0 && even && group_rows == unit_rows() &&
           tile_samples << slices_log2 <= kWarps;
  }
  // Whether all warps have the same number of whole blocks, of `c` input channels.
  bool whole(int64_t c) const {
    return c == int64_t{blocks} * kBlockInputs && blocks == blocks_per_warp * kWarps << k_slices_log2;
  }
};

// Whether there is an instance for warps that all have this many stages of whole blocks with five taps: those of layers
// of 512, 1024 and 2048 channels. It works without a jump from its first load to its last product.
constexpr bool has_instance_of(int stages, int parts, int tiles8) {
  if (parts > 2) return false;
  return tiles8 == 1 ? stages == 4 || stages == 8 || stages == 16 : tiles8 == 2 && (stages == 2 || stages == 4);
}

inline constexpr int kPrefetchedBytes = 20 << 10;  // of a warp's weights, into L2
inline constexpr int kMostRingBytes = 213 << 10;   // of all warps: weights and inputs in flight

inline constexpr int kMomentsBytes = 8;               // of a unit: mean and M2 as fp32
inline constexpr int kUnitBytes = 32 * kPerLane * 4;  // its sums

// The one plan of shared memory; byte offsets. First the barriers: sums received, and moments of all samples received.
// All that is needed early has a fixed place.
inline constexpr int kSumsBarrier = 0, kMomentsBarrier = 8;
inline constexpr int kTagOffset = 16;  // uint64_t: of Exchange::kWords
struct SharedPlan {
  int moments;   // float2 [samples of a tile][cluster units]
  int received;  // float [samples][own slices][k slices][32 lanes][kPerLane]: of the CTAs of the tile
  int ring;      // of each warp: stages in flight, then float [16 rows][columns], its partial sums
};

inline SharedPlan shared_plan(const Config& c) {
  const int samples = c.tile_samples;
  SharedPlan s{};
  s.moments = kTagOffset + 8;
  s.received = (s.moments + samples * c.cluster_units() * kMomentsBytes + 15) / 16 * 16;
  s.ring = s.received + (c.k_slices_log2 == 0 ? 0 : (samples << c.slices_log2) * kUnitBytes);
  return s;
}

}  // namespace convnorm::cuda::sm90_stream
