// Moments of a job by one warp.
//
// A lane sums distances from one value of the row and their squares, in fp32: means of any size beside their spread
// lose nothing. From the row on all is double, and every sum has a fixed order.
#pragma once

#include "kernels/cuda/collective/slots.cuh"
#include "kernels/cuda/collective/statistics.cuh"
#include "kernels/cuda/depthwise/config.hpp"

namespace convnorm::cuda::depthwise {

__device__ __forceinline__ float sum_warp(float value) { return sum_lanes(value, 5); }
__device__ __forceinline__ double sum_warp(double value) {
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) value += __shfl_xor_sync(~0u, value, mask);
  return value;
}

// Of one lane, of distances from the row's reference. Neighbouring instructions belong to different sums, so that none
// waits for the one before.
struct Sums {
  float sum[4] = {}, square[4] = {};

  // `distance(i)` of the valid among N values.
  template <int N, class Distance, class IsValid>
  __device__ __forceinline__ void add(bool whole, const Distance& distance, const IsValid& is_valid) {
    if (whole) {
#pragma unroll
      for (int i = 0; i < N; ++i) add(i, distance(i));
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (is_valid(i)) add(i, distance(i));
      }
    }
  }

  // Of all lanes, the same in each.
  __device__ __forceinline__ Slot merged(float reference, int count) const {
    if (count == 0) return {0, 0, 0};
    const float all = sum_warp((sum[0] + sum[1]) + (sum[2] + sum[3]));
    const float squares = sum_warp((square[0] + square[1]) + (square[2] + square[3]));
    const double mean = static_cast<double>(all) / count, m2 = fma(-static_cast<double>(all), mean, double{squares});
    return {static_cast<double>(count), static_cast<double>(reference) + mean, m2 < 0 ? 0 : m2};  // NaN stays
  }

 private:
  __device__ __forceinline__ void add(int i, float distance) {
    sum[i % 4] += distance;
    square[i % 4] = fmaf(distance, distance, square[i % 4]);
  }
};

// Squares that fp32 does not hold, or of distances from a reference so far from the mean that the spread is lost among
// them: the row is measured again in double.
__device__ __forceinline__ bool beyond_fp32(const Slot& m, float reference) {
  constexpr double kLeast = 1e-25, kMostOfMean = 256;
  const double distance = m.mean - static_cast<double>(reference);
  return m.count > 0 && !(m.m2 > kLeast && m.m2 < 1e38 && m.count * distance * distance < kMostOfMean * m.m2);
}

}  // namespace convnorm::cuda::depthwise
