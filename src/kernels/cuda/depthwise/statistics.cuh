// Moments of a job by one warp, of a domain by its CTAs.
//
// A lane merges tiles by Chan's formula in fp32, as distances from one value of the row: means of any size beside their
// spread lose nothing. From the row on all is double, and every sum has a fixed order.
#pragma once

#include "kernels/cuda/collective/statistics.cuh"
#include "kernels/cuda/depthwise/config.hpp"

namespace convnorm::cuda::depthwise {

__device__ __forceinline__ float sum_warp(float value) { return sum_lanes(value, 5); }
__device__ __forceinline__ double sum_warp(double value) {
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) value += __shfl_xor_sync(~0u, value, mask);
  return value;
}

// Of one lane. Values are given as distances from the row's reference.
struct Running {
  float count = 0, mean = 0, m2 = 0;

  template <int N, class IsValid>
  __device__ __forceinline__ void add(const float (&v)[N], float reference, bool whole, const IsValid& is_valid) {
    float sum = 0, squares = 0, own = N;
    if (whole) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum += v[i] - reference;
    } else {
      own = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (!is_valid(i)) continue;
        sum += v[i] - reference;
        own += 1;
      }
      if (own == 0) return;
    }
    const float own_mean = __fdividef(sum, own);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float distance = (v[i] - reference) - own_mean;
      if (whole || is_valid(i)) squares = fmaf(distance, distance, squares);
    }
    const float all = count + own, share = __fdividef(own, all), distance = own_mean - mean;
    mean = fmaf(distance, share, mean);
    m2 += fmaf(distance * distance, count * share, squares);
    count = all;
  }

  // Of all lanes, the same in each.
  __device__ __forceinline__ Slot merged(float reference) const {
    const float all = sum_warp(count);
    const float middle = divide(sum_warp(count * mean), all);
    const float distance = mean - middle;
    const float squares = sum_warp(fmaf(distance * distance, count, m2));
    return {static_cast<double>(all), static_cast<double>(reference) + static_cast<double>(middle),
            static_cast<double>(squares)};
  }
};

// Squares that fp32 does not hold: the row is measured again in double.
__device__ __forceinline__ bool beyond_fp32(const Slot& m) {
  constexpr double kLeast = 1e-25;
  return m.count > 0 && !(m.m2 > kLeast && m.m2 < 1e38);
}

// Slots [first, first + slots) merged by a warp, the same in each lane. Distances are taken from the mean of one of
// them, so that one round of sums, in double, serves mean and squares.
__device__ __forceinline__ Slot merge_slots(const Slot* first, int slots, int lane) {
  const unsigned filled = __ballot_sync(~0u, lane < slots && first[lane].count > 0);
  const double reference = filled == 0 ? 0 : first[__ffs(filled) - 1].mean;
  double count = 0, sum = 0, m2 = 0;
  for (int i = lane; i < slots; i += 32) {
    const Slot slot = first[i];
    if (slot.count == 0) continue;
    const double distance = slot.mean - reference, weighted = slot.count * distance;
    count += slot.count;
    sum += weighted;
    m2 += fma(weighted, distance, slot.m2);
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) {
    if (mask >= slots) break;  // the other lanes hold nothing
    count += __shfl_xor_sync(~0u, count, mask);
    sum += __shfl_xor_sync(~0u, sum, mask);
    m2 += __shfl_xor_sync(~0u, m2, mask);
  }
  if (slots < 32) {
    count = __shfl_sync(~0u, count, 0);
    sum = __shfl_sync(~0u, sum, 0);
    m2 = __shfl_sync(~0u, m2, 0);
  }
  if (count == 0) return {0, 0, 0};
  const double share = sum / count;
  const double left = fma(-sum, share, m2);
  return {count, reference + share, left < 0 ? 0 : left};
}

// 1 / sqrt(value), refined from fp32 where that holds it.
__device__ __forceinline__ double inverse_sqrt(double value) {
  if (!(value > 1e-30 && value < 1e30)) return 1 / sqrt(value);
  double root = static_cast<double>(rsqrtf(static_cast<float>(value)));
#pragma unroll
  for (int i = 0; i < 2; ++i) root = fma(fma(-value * root, root, 1.0), 0.5 * root, root);
  return root;
}

}  // namespace convnorm::cuda::depthwise
