// Mean and centred sum of squares of accumulators: values -> rows -> groups, always the mean first, always in one
// order.
#pragma once

#include "kernels/cuda/collective/fragment.cuh"

namespace convnorm::cuda {

struct Moments {
  float count;
  float mean;
  float m2;  // sum of squared distances from the mean
};

// Quotient and inverse root to within an ulp, without the branches for denormals of the exact forms; 0 for b = 0.
__device__ __forceinline__ float divide(float a, float b) {
  const float inverse = __fdividef(1.0f, b);
  const float quotient = a * inverse;
  return b > 0 ? fmaf(fmaf(-quotient, b, a), inverse, quotient) : 0.0f;
}
__device__ __forceinline__ float inverse_sqrt(float a) {
  const float root = rsqrtf(a);
  return fmaf(fmaf(-a * root, root, 1.0f), 0.5f * root, root);
}

// Chan's formula.
__device__ __forceinline__ Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  const float share = divide(b.count, count);
  const float distance = b.mean - a.mean;
  return {count, fmaf(distance, share, a.mean), a.m2 + b.m2 + distance * distance * (a.count * share)};
}

// Sums over 2^k neighbouring lanes, the same bits in each of them.
__device__ __forceinline__ float sum_lanes(float value, int lanes_log2) {
#pragma unroll
  for (int k = 0; k < 5; ++k) {
    if (k < lanes_log2) value += __shfl_xor_sync(~0u, value, 1 << k);
  }
  return value;
}

// Which columns of a tile are outputs: those of class (e, parity) below `end[e][parity]`.
struct ValidColumns {
  bool whole;  // all of them, for all lanes of the warp
  int end[2][2];
};

// A tile's accumulators of class (e, parity) that are no outputs become `value[h][e][parity]`.
template <int kTiles8>
__device__ __forceinline__ void fill_invalid(float (&d)[4 * kTiles8], const Fragment& at, const ValidColumns& valid,
                                             const float (&value)[2][2][2]) {
#pragma unroll
  for (int t = 0; t < kTiles8; ++t) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (at.column(t, e) >= valid.end[e][t % 2]) {
        d[4 * t + e] = value[0][e][t % 2];
        d[4 * t + 2 + e] = value[1][e][t % 2];
      }
    }
  }
}

// Adds up what belongs to one sample: over parities, e and lanes of the quad, as far as they share it.
__device__ __forceinline__ void sum_samples(float (&sum)[2][2][2], int samples_log2) {
  if (samples_log2 == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h][0][0] = (sum[h][0][0] + sum[h][0][1]) + (sum[h][1][0] + sum[h][1][1]);
#pragma unroll
    for (int mask = 1; mask <= 2; mask <<= 1) {
#pragma unroll
      for (int h = 0; h < 2; ++h) sum[h][0][0] += __shfl_xor_sync(~0u, sum[h][0][0], mask);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h][0][1] = sum[h][1][0] = sum[h][1][1] = sum[h][0][0];
  } else if (samples_log2 <= 3) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& own = sum[i / 2][i % 2][0];
      own += sum[i / 2][i % 2][1];
      if (samples_log2 <= 2) own += __shfl_xor_sync(~0u, own, 2);
      if (samples_log2 <= 1) own += __shfl_xor_sync(~0u, own, 1);
      sum[i / 2][i % 2][1] = own;
    }
  }
}

// {mean, M2} of every (row, sample) of a warpgroup's block, had `bias` been added to the rows of h = 0 and 1 ->
// table[64][samples]. The counts follow from the tile.
// Accumulators that are no outputs are overwritten. Neighbouring instructions belong to different sums, so that none
// waits for the one before.
template <int kTiles8>
__device__ __forceinline__ void row_statistics(float (&d)[4 * kTiles8], const Fragment& at, int samples_log2,
                                               const ValidColumns& valid, const float (&bias)[2], float2* table) {
  const int samples = 1 << samples_log2;
  float mean[2][2][2] = {}, m2[2][2][2] = {};  // [h][e][parity]
  if (!valid.whole) fill_invalid<kTiles8>(d, at, valid, mean);
#pragma unroll
  for (int i = 0; i < 4 * kTiles8; ++i) mean[i / 2 % 2][i % 2][i / 4 % 2] += d[i];
  sum_samples(mean, samples_log2);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto count = static_cast<float>(valid.end[i / 2][i % 2] >> samples_log2);
#pragma unroll
    for (int h = 0; h < 2; ++h) mean[h][i / 2][i % 2] = divide(mean[h][i / 2][i % 2], count);
  }
  if (!valid.whole) fill_invalid<kTiles8>(d, at, valid, mean);
#pragma unroll
  for (int i = 0; i < 4 * kTiles8; ++i) {
    const float distance = d[i] - mean[i / 2 % 2][i % 2][i / 4 % 2];
    float& sum = m2[i / 2 % 2][i % 2][i / 4 % 2];
    sum = fmaf(distance, distance, sum);
  }
  sum_samples(m2, samples_log2);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float2* row = table + ((at.row + 8 * h) << samples_log2);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int sample = 2 * at.quad + e;
      if (sample < samples) row[sample] = make_float2(mean[h][e][0] + bias[h], m2[h][e][0]);
      if (sample + 8 < samples) row[sample + 8] = make_float2(mean[h][e][1] + bias[h], m2[h][e][1]);
    }
  }
}

// Rows [first, end) of one sample, `count` values each, merged by 2^lanes_log2 neighbouring lanes, of which this is
// `lane`. Means are averaged as distances from one of them, which loses nothing where all are large.
__device__ __forceinline__ Moments merge_rows(const float2* table, int samples_log2, int sample, int first, int end,
                                              float count, int lanes_log2, int lane) {
  const auto rows = static_cast<float>(end - first);
  const float base = first < end ? table[(first << samples_log2) + sample].x : 0.0f;
  float sum = 0;
#pragma unroll 1
  for (int row = first + lane; row < end; row += 1 << lanes_log2) sum += table[(row << samples_log2) + sample].x - base;
  const float mean = base + divide(sum_lanes(sum, lanes_log2), rows);
  float m2 = 0;
#pragma unroll 1
  for (int row = first + lane; row < end; row += 1 << lanes_log2) {
    const float2 moments = table[(row << samples_log2) + sample];
    const float distance = moments.x - mean;
    m2 += fmaf(distance * distance, count, moments.y);
  }
  return {rows * count, mean, sum_lanes(m2, lanes_log2)};
}

// One part in each of 2^lanes_log2 neighbouring lanes, `count` values in all.
__device__ __forceinline__ Moments merge_lanes(const Moments& part, float count, int lanes_log2) {
  const float base = __shfl_sync(~0u, part.mean, 0, 1 << lanes_log2);
  const float weight = divide(part.count, count);
  Moments all;
  all.count = count;
  all.mean = base + sum_lanes(weight * (part.mean - base), lanes_log2);
  const float distance = part.mean - all.mean;
  all.m2 = sum_lanes(fmaf(distance * distance, part.count, part.m2), lanes_log2);
  return all;
}

}  // namespace convnorm::cuda
