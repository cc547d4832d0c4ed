// Small L: conv -> norm -> post ops where weights dominate. Every warp requests as much of its part of the weight as
// fits at once, in the order in which mma.sync takes it, and x beside it; a CTA's warps share the input channels of its
// slice, so that nothing is read twice.
#pragma once

#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/sm90_stream/finish.cuh"
#include "kernels/cuda/sm90_stream/inputs.cuh"

namespace convnorm::cuda::sm90_stream {

// By one thread, before the cluster's first arrival.
__device__ __forceinline__ void init_barriers(const Front& f, uint32_t barriers) {
  // A CTA alone stores by itself, and its units arrive; between CTAs the bytes that land count.
  ptx::mbarrier_init(barriers + kSumsBarrier, 1);
  ptx::mbarrier_init(barriers + kMomentsBarrier, f.alone ? max(f.expected_moments, 1) : 1);
  ptx::fence_mbarrier_init();
  ptx::mbarrier_arrive_expect_tx(barriers + kSumsBarrier,
                                 f.k_slices_log2 == 0 ? 0 : (f.tile_samples << f.slices_log2) * kUnitBytes);
  if (!f.alone) ptx::mbarrier_arrive_expect_tx(barriers + kMomentsBarrier, f.expected_moments * kMomentsBytes);
}

// Part `part` of a tap's weights, as the A operand.
template <class T>
__device__ __forceinline__ uint4 weight_part(const uint4 (&weights)[T::kWeightVectors], int tap, int part) {
  if constexpr (!T::kWholeWeights) {
    return weights[tap * T::kVectorsOfTap + part];
  } else {
    const auto pair = [&](uint32_t low, uint32_t high) {
      uint32_t parts[T::kParts];
      split_pair(__uint_as_float(low), __uint_as_float(high), parts);
      return parts[part];
    };
    const uint4 first = weights[2 * tap], second = weights[2 * tap + 1];
    return {pair(first.x, first.y), pair(first.z, first.w), pair(second.x, second.y), pair(second.z, second.w)};
  }
}

// A stage's products of parts, without those that are smaller than what the last part leaves: small ones first.
template <class T>
__device__ __forceinline__ void multiply(float (&sums)[T::kSums][T::kTiles8][4],
                                         const uint4 (&weights)[T::kWeightVectors], const typename Inputs<T>::Raw& raw,
                                         const Inputs<T>& inputs) {
  const Operands<T> x = inputs.operands(raw);
#pragma unroll
  for (int both = T::kParts - 1; both >= 0; --both) {
#pragma unroll
    for (int part = both; part >= 0; --part) {
#pragma unroll
      for (int tap = 0; tap < T::kStageTaps; ++tap) {
        const uint4 a = weight_part<T>(weights, tap, both - part);
#pragma unroll
        for (int j = 0; j < T::kTiles8; ++j) {
          uint32_t b[2];
#pragma unroll
          for (int u = 0; u < 2; ++u) {
            b[u] = T::kShiftsInputs ? inputs.shifted(x.b[part], j, u, tap - T::kStageTaps / 2) : x.b[part][j][u];
          }
          const int sum = T::kShiftsSums ? tap : both % T::kSums;
          ptx::mma<typename T::Operand>(sums[sum][j], a, b[0], b[1]);
        }
      }
    }
  }
}

// A lane's sums are 2 * kTiles8 neighbouring columns of rows g and g + 8. Those of a tap move by as many positions as
// the tap reads ahead, within their sample.
template <class T>
__device__ __forceinline__ void store_sums(const float (&sums)[T::kSums][T::kTiles8][4], int positions, float* of_warp,
                                           int lane) {
  constexpr int kOwn = 2 * T::kTiles8, kMiddle = T::kShiftsSums ? T::kStageTaps / 2 : 0;
  const int first = (lane & 3) * kOwn;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float v[kOwn];
    const auto of_column = [&](int sum, int i) { return sums[sum][i % T::kTiles8][2 * h + i / T::kTiles8]; };
#pragma unroll
    for (int i = 0; i < kOwn; ++i) v[i] = of_column(kMiddle, i);
#pragma unroll
    for (int s = 0; s < T::kSums; ++s) {
      if (s == kMiddle) continue;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if constexpr (T::kShiftsSums) {
          const int from = i + s - kMiddle, lanes = (from + 8 * kOwn) / kOwn - 8;
          const float own = of_column(s, from - lanes * kOwn);
          const float moved = lanes == 0 ? own : __shfl_sync(~0u, own, lane + lanes);
          // A sample's places are a multiple of kPerLane, so that it may end inside a lane's only where these are more.
          const int begin = kOwn > kPerLane ? first + i : lanes < 0 ? first : first + kOwn - 1;
          const int end = kOwn > kPerLane ? begin + s - kMiddle : begin + lanes;
          const bool stays = (kOwn <= kPerLane && lanes == 0) || ((begin ^ end) & -positions) == 0;
          v[i] += stays ? moved : 0.0f;
        } else {
          v[i] += of_column(s, i);
        }
      }
    }
    float* row = of_warp + ((lane >> 2) + 8 * h) * 8 * T::kTiles8 + first;
    if constexpr (T::kTiles8 == 1) {
      *reinterpret_cast<float2*>(row) = make_float2(v[0], v[1]);
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; i += 4) {
        *reinterpret_cast<float4*>(row + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
      }
    }
  }
}

// kWeightsFirst: weights are requested before anything else, and before waiting for the kernel before this one. Else
// inputs are, so that products start as the weights arrive.
template <class T, bool kWeightsFirst>
__global__ void __launch_bounds__(T::kThreads, 1) stream_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Front& f = p.front;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int tile = static_cast<int>(blockIdx.y * (gridDim.x >> f.k_slices_log2) + (blockIdx.x >> f.k_slices_log2));
  const int k_slice = static_cast<int>(blockIdx.x) & ((1 << f.k_slices_log2) - 1);

  if (threadIdx.x == 0) init_barriers(f, ptx::shared_address(shared));
  // Relaxed and before the loads: behind them it would wait for them.
  ptx::cluster_arrive_relaxed();

  const int first_block = (k_slice * kWarps + warp) * f.blocks_per_warp;
  const int stages =
      T::kStages > 0 ? T::kStages : min(max(f.blocks - first_block, 0), f.blocks_per_warp) * (T::kShifts ? 1 : f.taps);
  const uint4* next_weights =
      f.packed + static_cast<uint32_t>((tile * f.blocks + first_block) * f.block_vectors + lane);
  uint4 weights[T::kDepth][T::kWeightVectors];
  typename Inputs<T>::Raw raw[T::kDepth];
  const auto load_weights = [&](int slot, bool wanted) {
    if (wanted) {
#pragma unroll
      for (int i = 0; i < T::kWeightVectors; ++i) weights[slot][i] = ptx::load_once(next_weights + i * 32);
    }
    next_weights += T::kWeightVectors * 32;
  };
  // A warp computes a stage only when all that it has requested is there, and requests the next ones only then. So that
  // memory does not idle meanwhile, the rest is on its way into L2, where it is little; where it is much, that would
  // only be in the way of what is needed first.
  const auto prefetch_rest = [&] {
    const int rest = T::kStages > 0 ? 0 : stages - T::kDepth;
    if (rest > 0 && rest <= T::kPrefetched && lane == 0) {
      ptx::prefetch_l2(next_weights, rest * (T::kWeightVectors * 512));
    }
  };
  // Warps of few stages jump over loads that they do not need.
  const auto none_left = [&](int u) { return T::kStages == 0 && u >= 2 && u % 2 == 0 && u >= stages; };
  const auto load_first_weights = [&] {
#pragma unroll
    for (int u = 0; u < T::kDepth; ++u) {
      if (none_left(u)) break;
      load_weights(u, u < stages);
    }
    prefetch_rest();
  };
  if constexpr (kWeightsFirst) {
    load_first_weights();
    ptx::launch_dependents();
  }
  Inputs<T> inputs(p, first_block, lane);
  Finish<T> finish(p, shared, tile, k_slice, warp, lane);
  typename Finish<T>::Places places;
  constexpr bool kPlacesFirst = T::kPlacesAhead && kWeightsFirst;
  if constexpr (kPlacesFirst) places = finish.places();
  if constexpr (kWeightsFirst) ptx::wait_for_predecessors();
  unsigned char* const ring = shared + ring_offset(f) + warp * T::kRingBytes;
  const auto copy_inputs = [&](int slot, int stage) {
    if (stage < stages) inputs.copy(ptx::shared_address(ring) + slot * T::kStageBytes, stage);
    ptx::commit_copies();
  };
  const auto load_inputs = [&](int slot, int stage) {
    if constexpr (T::kShiftsSums) {
      inputs.load_next(raw[slot], stage < stages);
    } else {
      inputs.load_next_tap(raw[slot], stage < stages);
    }
  };
  if constexpr (T::kInputsAhead) {
#pragma unroll
    for (int u = 0; u < T::kDepth; ++u) {
      if (none_left(u)) break;
      load_inputs(u, u);
    }
  }
  if constexpr (T::kShiftsInputs) {
    for (int u = 0; u < T::kXDepth; ++u) copy_inputs(u, u);
  }
  if constexpr (!kWeightsFirst) load_first_weights();
  __syncwarp();  // keeps what follows from being requested before

  if constexpr (T::kStages > 0) {
    finish.request_in_line();
  } else if (finish.has_unit()) {
    finish.request_parameters();
  }
  if constexpr (T::kPlacesAhead && !kPlacesFirst) places = finish.places();
  uint32_t fingerprint[2];
  ptx::load_64(p.tail.header, true, fingerprint[0], fingerprint[1]);
  const bool by_words = p.tail.exchange == static_cast<int>(Exchange::kWords);
  const uint64_t last_tag = ptx::load_relaxed_or_zero(&p.tail.slot.header->tag, by_words && threadIdx.x == 0);

  float sums[T::kSums][T::kTiles8][4] = {};
  if constexpr (T::kStages > 0) {
    // Without a jump since the first load, the compiler waits for a stage by itself; else for all that is on its way.
#pragma unroll
    for (int stage = 0; stage < T::kStages; ++stage) {
      const int u = stage % T::kDepth;
      multiply<T>(sums, weights[u], raw[u], inputs);
      if (stage + T::kDepth < T::kStages) {
        load_weights(u, true);
        load_inputs(u, stage + T::kDepth);
      }
    }
  } else {
    int slot = 0;
#pragma unroll 1
    for (int stage = 0; stage < stages; stage += T::kDepth) {
#pragma unroll
      for (int u = 0; u < T::kDepth; ++u) {
        if (u > 0 && stage + u >= stages) break;
        if constexpr (T::kShiftsInputs) {
          ptx::wait_copies<T::kXDepth - 1>();
          raw[u] = inputs.read(ring + slot * T::kStageBytes);
        } else if constexpr (!T::kInputsAhead) {
          load_inputs(u, stage + u);
        }
        multiply<T>(sums, weights[u], raw[u], inputs);
        load_weights(u, stage + u + T::kDepth < stages);
        if constexpr (T::kInputsAhead) load_inputs(u, stage + u + T::kDepth);
        if constexpr (T::kShiftsInputs) {
          copy_inputs(slot, stage + u + T::kXDepth);
          slot = slot + 1 == T::kXDepth ? 0 : slot + 1;
        }
      }
    }
  }
  if constexpr (T::kShiftsInputs) {
    ptx::wait_copies<0>();
    __syncwarp();  // other lanes' words of the ring are free, too
  }
  store_sums<T>(sums, 1 << f.positions_log2, reinterpret_cast<float*>(ring), lane);
  // As packed_fault(), which would wait for the value.
  const bool fits = fingerprint[0] == static_cast<uint32_t>(p.tail.fingerprint) &&
                    fingerprint[1] == static_cast<uint32_t>(p.tail.fingerprint >> 32);
  const float fault = fits ? 0.0f : __int_as_float(0x7fffffff);
  uint64_t* const tag = reinterpret_cast<uint64_t*>(shared + kTagOffset);
  if (by_words && threadIdx.x == 0) *tag = last_tag + 1;
  if constexpr (!T::kPlacesAhead) places = finish.places();
  ptx::cluster_wait();  // the barriers of all CTAs are initialised
  __syncthreads();

  // By a warp that has least to do.
  if (by_words && threadIdx.x == T::kThreads - 1) {
    first_tag_of_launch(p.tail.slot.header, *tag - 1, gridDim.x * gridDim.y * gridDim.z, 1);
  }
  if (T::kStages > 0 || p.tail.straight) {
    finish.straight(places, fault);
  } else {
    if (f.k_slices_log2 > 0) finish.send_sums();
    if (finish.has_unit()) finish.unit(fault);
  }
}

}  // namespace convnorm::cuda::sm90_stream
