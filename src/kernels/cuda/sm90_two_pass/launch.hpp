// Host side of the two passes that needs a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/sm90_two_pass/config.hpp"

namespace convnorm::cuda::sm90_two_pass {

// z as the first pass leaves it.
struct ZRows {
  float* z;  // (N, C_out, pitch); null: not kept
  int64_t pitch;
  const any_arch::Norm* norms;  // (N, G)
};

// Moments of what a block of 64 channels and a column tile hold of a group, its piece.
struct GroupPieces {
  using Moments = any_arch::SegmentMoments;

  Moments* moments;  // (N, segments, blocks, of_block)
  int64_t segments;  // column tiles
  int columns;       // of a tile
  int blocks;        // of 64 channels
  int of_block;      // groups that share a block, at most

  CONVNORM_HOST_DEVICE int64_t sample_stride() const { return segments * blocks * of_block; }
};

// The first pass: moments of the groups' pieces, and z where it is kept. `tiles` are those of the call.
void launch_measure(const Arguments& arguments, const sm90_onchip::Config& tiles, Width width, const ZRows& z,
                    const GroupPieces& pieces, cudaStream_t stream);
// Between the passes: pieces to norms.
void launch_merge(const Arguments& arguments, const GroupPieces& pieces, any_arch::Norm* norms, cudaStream_t stream);
// The second: z to y, or x to y.
void launch_normalise(const Arguments& arguments, const ZRows& z, cudaStream_t stream);
void launch_finish(const Arguments& arguments, const sm90_onchip::Config& tiles, Width width,
                   const any_arch::Norm* norms, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_two_pass
