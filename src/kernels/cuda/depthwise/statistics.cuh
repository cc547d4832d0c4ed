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

// Slots [first, first + slots) merged by a warp, the same in each lane.
__device__ __forceinline__ Slot merge_slots(const Slot* first, int slots, int lane) {
  double count = 0, sum = 0;
  for (int i = lane; i < slots; i += 32) {
    count += first[i].count;
    if (first[i].count > 0) sum += first[i].count * first[i].mean;
  }
  Slot all{};
  all.count = sum_warp(count);
  sum = sum_warp(sum);
  if (all.count > 0) all.mean = sum / all.count;
  double m2 = 0;
  for (int i = lane; i < slots; i += 32) {
    const double distance = first[i].mean - all.mean;
    if (first[i].count > 0) m2 += first[i].m2 + first[i].count * distance * distance;
  }
  all.m2 = sum_warp(m2);
  return all;
}

}  // namespace convnorm::cuda::depthwise
