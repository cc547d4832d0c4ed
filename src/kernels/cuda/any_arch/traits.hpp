// any_arch: shapes of its tiles, and what its kernels hand to one another in the workspace.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/arguments.hpp"

namespace convnorm::cuda::any_arch {

inline constexpr int kThreads = 256;

// A CTA computes kChannels x kPositions outputs of one sample and one conv group, kDepth products of each at a time. A
// thread holds kOwnChannels x kOwnPositions of them.
template <int kChannels_, int kPositions_, int kDepth_, int kOwnChannels_, int kOwnPositions_>
struct Tile {
  static constexpr int kChannels = kChannels_, kPositions = kPositions_, kDepth = kDepth_;
  static constexpr int kOwnChannels = kOwnChannels_, kOwnPositions = kOwnPositions_;
  static constexpr int kSegment = kPositions < 64 ? kPositions : 64;  // of a channel, measured at once by a warp
  static_assert(kChannels / kOwnChannels * (kPositions / kOwnPositions) == kThreads);
  static_assert(kThreads % kChannels == 0 && kThreads % kPositions == 0 && kPositions % kSegment == 0);
};

using Large = Tile<128, 64, 16, 8, 4>;  // long rows, many channels
using Wide = Tile<64, 64, 16, 4, 4>;    // long rows
using Short = Tile<64, 16, 16, 4, 1>;   // short rows, many samples
using Small = Tile<16, 16, 32, 1, 1>;   // few outputs: as many CTAs as can be had
using Row = Tile<1, 256, 8, 1, 1>;      // conv groups of few outputs, depthwise ones above all

enum class TileKind { large, wide, short_rows, small, row };

template <class Body>
decltype(auto) with_tile(TileKind kind, Body&& body) {
  switch (kind) {
    case TileKind::large:
      return body(Large{});
    case TileKind::wide:
      return body(Wide{});
    case TileKind::short_rows:
      return body(Short{});
    case TileKind::small:
      return body(Small{});
    default:
      return body(Row{});
  }
}

// Of one segment of a channel; its number of values follows from where it lies.
struct SegmentMoments {
  double mean, m2;
};

struct Moments {
  double count, mean, m2;
};

// What the norm does to a group, each number in two floats: z - mean_high - mean_low, and so on.
struct Norm {
  float mean_high, mean_low, rstd_high, rstd_low;
};

inline constexpr int kSegmentsPerChunk = 16 * kThreads;  // that one CTA merges

// What is computed at a time: samples [first, first + count), outputs [position, position + positions) of each.
struct Wave {
  int64_t first, count;
  int64_t position, positions;
  int64_t segments;         // of one channel, over all of L_out
  int segment_positions;    // Tile::kSegment
  float* z;                 // (count, C_out, positions) or (count, positions, C_out); null: not kept
  SegmentMoments* partial;  // (count, C_out, segments); null: not measured
  Moments* merged;          // (count, G, chunks); null where chunks is 1
  int64_t chunks;           // of kSegmentsPerChunk segments, in one group
  Norm* norms;              // (count, G)
};

// z = pre(conv1d(x, w) + bias) of a wave, and the moments of its segments.
void convolve_f32(const Arguments& arguments, const Wave& wave, TileKind tile, cudaStream_t stream);
void convolve_f16(const Arguments& arguments, const Wave& wave, TileKind tile, cudaStream_t stream);
void convolve_bf16(const Arguments& arguments, const Wave& wave, TileKind tile, cudaStream_t stream);
// moments of segments -> norms.
void merge(const Arguments& arguments, const Wave& wave, cudaStream_t stream);
// y = post((z - mean) * (rstd * gamma) + beta), and 0 past a sample's valid outputs.
void normalise(const Arguments& arguments, const Wave& wave, cudaStream_t stream);
// w (C_out, C_in/conv_groups, K) -> fp32 (conv_groups, C_in/conv_groups * K, C_out/conv_groups).
void pack(const Arguments& arguments, const void* weight, float* packed, cudaStream_t stream);

CONVNORM_HOST_DEVICE inline int64_t tiles_along(int64_t extent, int tile) { return (extent + tile - 1) / tile; }

// CTAs for `items` pieces of work, which they take in turn: enough to fill any GPU many times over.
inline unsigned grid_for(int64_t items) {
  return static_cast<unsigned>(items < (int64_t{1} << 30) ? items : int64_t{1} << 30);
}

}  // namespace convnorm::cuda::any_arch
