// Moments in double: of rows, of CTAs, of groups. Every sum has a fixed order.
#pragma once

#include "kernels/cuda/collective/slot.hpp"

namespace convnorm::cuda {

// Chan's formula.
__device__ __forceinline__ Slot merge(const Slot& a, const Slot& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const double count = a.count + b.count, share = b.count / count, distance = b.mean - a.mean;
  return {count, fma(distance, share, a.mean), a.m2 + b.m2 + distance * distance * (a.count * share)};
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

}  // namespace convnorm::cuda
