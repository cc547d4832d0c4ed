// Small L: conv -> norm -> post ops where weights dominate. Every warp requests as much of its part of the weight as
// fits at once, in the order in which mma.sync takes it, and x beside it; a CTA's warps share the input channels of its
// slice, so that nothing is read twice.
#pragma once

#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/sm90_stream/finish.cuh"
#include "kernels/cuda/sm90_stream/inputs.cuh"

namespace convnorm::cuda::sm90_stream {

// By one warp, before the cluster's first arrival.
__device__ __forceinline__ void init_barriers(uint32_t barriers, int lane) {
  if (lane > kMostSamples) return;
  ptx::mbarrier_init(barriers + 8 * lane, 1);
  ptx::fence_mbarrier_init();
}

// By the same warp, at any time: a barrier waits for this, too. Those of which no bytes are expected are used by
// nobody.
__device__ __forceinline__ void expect_bytes(const Tail& t, uint32_t barriers, int lane) {
  if (lane > kMostSamples) return;
  ptx::mbarrier_arrive_expect_tx(barriers + 8 * lane, lane == 0 ? t.sums_expected : t.moments_expected);
}

// A stage's products: small ones first, then those of the rounded values.
template <class T>
__device__ __forceinline__ void multiply(float (&sums)[T::kSums][T::kTiles8][4],
                                         const uint4 (&weights)[T::kWeightVectors], const typename Inputs<T>::Raw& raw,
                                         const Inputs<T>& inputs) {
  const Operands<T> x = inputs.operands(raw);
#pragma unroll
  for (int part = T::kParts - 1; part >= 0; --part) {
#pragma unroll
    for (int tap = 0; tap < T::kStageTaps; ++tap) {
      uint32_t b[T::kTiles8][2];
#pragma unroll
      for (int j = 0; j < T::kTiles8; ++j) {
#pragma unroll
        for (int u = 0; u < 2; ++u) b[j][u] = inputs.shifted(x.b[part], j, u, tap - T::kStageTaps / 2);
      }
      // The lost part of x meets the rounded weight alone; the rounded x meets both parts of the weight.
#pragma unroll
      for (int weight_part = part == 0 ? T::kParts - 1 : 0; weight_part >= 0; --weight_part) {
#pragma unroll
        for (int j = 0; j < T::kTiles8; ++j) {
          ptx::mma<typename T::Operand>(sums[tap % T::kSums][j], weights[tap * T::kParts + weight_part], b[j][0],
                                        b[j][1]);
        }
      }
    }
  }
}

// A lane's sums are 2 * kTiles8 neighbouring columns of rows g and g + 8.
template <class T>
__device__ __forceinline__ void store_sums(float (&sums)[T::kSums][T::kTiles8][4], float* of_warp, int lane) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float v[2 * T::kTiles8];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int j = 0; j < T::kTiles8; ++j) {
        float sum = sums[0][j][2 * h + e];
#pragma unroll
        for (int s = 1; s < T::kSums; ++s) sum += sums[s][j][2 * h + e];
        v[e * T::kTiles8 + j] = sum;
      }
    }
    float* row = of_warp + ((lane >> 2) + 8 * h) * 8 * T::kTiles8 + (lane & 3) * 2 * T::kTiles8;
    if constexpr (T::kTiles8 == 1) {
      *reinterpret_cast<float2*>(row) = make_float2(v[0], v[1]);
    } else {
#pragma unroll
      for (int i = 0; i < 2 * T::kTiles8; i += 4) {
        *reinterpret_cast<float4*>(row + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, 1) stream_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Front& f = p.front;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int tile = static_cast<int>(blockIdx.y) * f.row_tiles + (static_cast<int>(blockIdx.x) >> f.k_slices_log2);
  const int k_slice = static_cast<int>(blockIdx.x) & ((1 << f.k_slices_log2) - 1);

  if (warp == 0) init_barriers(ptx::shared_address(shared), lane);
  // Relaxed and before the loads: behind them it would wait for them.
  ptx::cluster_arrive_relaxed();

  const int first_block = (k_slice * kWarps + warp) * f.blocks_per_warp;
  const int stages = min(max(f.blocks - first_block, 0), f.blocks_per_warp) * (T::kShifts ? 1 : f.taps);
  const Inputs<T> inputs(p, first_block, lane);
  const uint4* packed = f.packed + (int64_t{tile} * f.blocks + first_block) * f.taps * (T::kParts * 32) + lane;
  unsigned char* const ring = shared + f.ring + warp * T::kRingBytes;
  const uint32_t ring_address = ptx::shared_address(ring);
  const auto copy_weights = [&](int slot, int stage) {
    const uint32_t to = ring_address + slot * T::kStageBytes + lane * 16;
    const uint4* from = packed + static_cast<int64_t>(stage) * (T::kWeightVectors * 32);
#pragma unroll
    for (int i = 0; i < T::kWeightVectors; ++i) ptx::copy_async(to + i * 512, from + i * 32);
  };
  const auto copy_inputs = [&](int slot, int stage) {
    if constexpr (T::kShifts) inputs.copy(ring_address + slot * T::kStageBytes + T::kWeightBytes, stage);
  };
  if (f.weights_first) {
    for (int u = 0; u < min(T::kDepth, stages); ++u) copy_weights(u, u);
  }
  ptx::launch_dependents();
  ptx::wait_for_predecessors();
  for (int u = 0; u < T::kDepth; ++u) {
    if (u < stages) {
      copy_inputs(u, u);
      if (!f.weights_first) copy_weights(u, u);
    }
    ptx::commit_copies();
  }

  if (warp == 0) expect_bytes(p.tail, ptx::shared_address(shared), lane);
  Finish<T> finish(p, shared, tile, k_slice, warp, lane);
  finish.request_channel();
  uint32_t fingerprint[2];
  ptx::load_64(p.tail.header, true, fingerprint[0], fingerprint[1]);
  if (p.tail.exchange == static_cast<int>(Exchange::kWords) && threadIdx.x == 0) {
    *reinterpret_cast<uint64_t*>(shared + kTagOffset) =
        first_tag_of_launch(p.tail.slot.header, gridDim.x * gridDim.y, 1);
  }

  float sums[T::kSums][T::kTiles8][4] = {};
  int slot = 0;
  for (int stage = 0; stage < stages; ++stage) {
    typename Inputs<T>::Raw raw;
    if constexpr (!T::kShifts) raw = inputs.load(stage);
    ptx::wait_copies<T::kDepth - 1>();
    const unsigned char* from = ring + slot * T::kStageBytes;
    uint4 weights[T::kWeightVectors];
#pragma unroll
    for (int i = 0; i < T::kWeightVectors; ++i) weights[i] = reinterpret_cast<const uint4*>(from)[i * 32 + lane];
    if constexpr (T::kShifts) raw = inputs.read(from + T::kWeightBytes);
    multiply<T>(sums, weights, raw, inputs);
    if (stage + T::kDepth < stages) {
      copy_weights(slot, stage + T::kDepth);
      copy_inputs(slot, stage + T::kDepth);
    }
    ptx::commit_copies();
    slot = slot + 1 == T::kDepth ? 0 : slot + 1;
  }
  ptx::wait_copies<0>();
  __syncwarp();  // other lanes' words of the ring are free, too
  store_sums<T>(sums, reinterpret_cast<float*>(ring), lane);
  finish.request_post();
  // As packed_fault(), which would wait for the value.
  const bool fits = fingerprint[0] == static_cast<uint32_t>(p.tail.fingerprint) &&
                    fingerprint[1] == static_cast<uint32_t>(p.tail.fingerprint >> 32);
  ptx::cluster_wait();  // the barriers of all CTAs are initialised
  __syncthreads();

  if (f.k_slices_log2 > 0) finish.send_sums();
  if (finish.has_unit()) finish.unit(fits ? 0.0f : __int_as_float(0x7fffffff));
}

}  // namespace convnorm::cuda::sm90_stream
