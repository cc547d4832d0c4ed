// Mean and standard deviation of accumulators: values -> rows -> groups, always the mean first, always in one order.
#pragma once

#include "kernels/cuda/collective/fragment.cuh"

namespace convnorm::cuda {

// What is kept and exchanged.
struct Spread {
  float count;
  float mean;
  float
      m2;  // or minus sigma, sqrt(M2 / count), where M2 leaves fp32's range: sigma is in range wherever the values are
};

// Of values times a scale.
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

__device__ __forceinline__ float root(float a) {
  float result;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}

// A power of two by which values are multiplied before their distances are squared. Only values beyond 1e17 or below
// 1e-14 need another one than 1.
class Scale {
 public:
  __device__ __forceinline__ explicit Scale(int range) : range_(range) {}

  __device__ __forceinline__ float factor() const { return power_of_two(exponent()); }
  __device__ __forceinline__ float inverse() const { return power_of_two(-exponent()); }

  __device__ __forceinline__ unsigned bit() const { return 1u << range_; }  // among those of others()

  // Whether these moments of values times factor() are good.
  __device__ __forceinline__ bool suits(const Moments& m) const {
    return range_ == 0 || (range_ == 1 ? !(m.m2 <= 0x1p-40f) : m.m2 < 0x1p70f);  // kMost and kLeast, scaled
  }
  // The other scales at which values must be measured, a bit for each.
  __device__ __forceinline__ unsigned others(const Moments& m) const {
    if (range_ != 0 || !(m.count > 1) || in_range(m.m2)) return 0;
    if (!(m.m2 < kLeast)) return 2;  // or NaN
    return fabsf(m.mean) < kMostMean ? 4 : 0;
  }
  static __device__ __forceinline__ bool in_range(float m2) { return m2 >= kLeast && m2 <= kMost; }

  __device__ __forceinline__ Spread spread(const Moments& m) const {
    if (range_ == 0) return {m.count, m.mean, m.m2};
    return {m.count, m.mean * inverse(), -root(divide(m.m2, m.count)) * inverse()};
  }
  __device__ __forceinline__ Moments moments(const Spread& s) const {
    const float scaled = s.m2 * factor();
    return {s.count, s.mean * factor(), s.m2 >= 0 ? scaled * factor() : s.count * scaled * scaled};
  }

 private:
  static constexpr float kLeast = 0x1p-90f, kMost = 0x1p120f;  // of an m2 whose squares were in range
  // Values so large that are so close together are equal, and their sum would leave the range at the scale for small
  // ones.
  static constexpr float kMostMean = 0x1p32f;
  static __device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((127 + exponent) << 23); }
  __device__ __forceinline__ int exponent() const { return range_ == 0 ? 0 : range_ == 1 ? -80 : 80; }

  const int range_;  // 0: 1, 1: for large values, 2: for small ones
};

// Calls measure(scale) at scale 1 and at those scales that measure() of some lane of the warp then asks for.
template <class Measure>
__device__ __forceinline__ void at_scales(const Measure& measure) {
  unsigned wanted = 1;
#pragma unroll 1
  for (int range = 0; wanted >> range != 0; ++range) {
    if ((wanted >> range & 1) == 0) continue;
    const unsigned others = measure(Scale(range));
    if (range == 0) wanted |= __reduce_or_sync(~0u, others);
  }
}

// The spread of what measure(scale) gives as moments, by all lanes of a warp. `counts`: this lane's is of account.
template <class Measure>
__device__ __forceinline__ Spread spread_of(bool counts, const Measure& measure) {
  Spread result = {0, 0, 0};
  at_scales([&](const Scale& scale) {
    const Moments m = measure(scale);
    if (scale.suits(m)) result = scale.spread(m);
    return counts ? scale.others(m) : 0u;
  });
  return result;
}

// 1 / sqrt(variance + eps). Capped, so that it times gamma stays finite: a variance of 0 multiplies distances of 0.
__device__ __forceinline__ float rstd_of(const Spread& s, double eps) {
  if (Scale::in_range(s.m2)) return inverse_sqrt(divide(s.m2, s.count) + static_cast<float>(eps));
  const double value = s.m2, rstd = rsqrt((value >= 0 ? value / s.count : value * value) + eps);
  const double cap = value == 0 ? 0x1p64 : 0x1p120;
  return static_cast<float>(rstd > cap ? cap : rstd);
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

// A tile's accumulators of row h and class (e, parity) that are no outputs become `value[e][parity]`.
template <int kTiles8>
__device__ __forceinline__ void fill_invalid(float (&d)[4 * kTiles8], const Fragment& at, int h,
                                             const ValidColumns& valid, const float (&value)[2][2]) {
#pragma unroll
  for (int t = 0; t < kTiles8; ++t) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (at.column(t, e) >= valid.end[e][t % 2]) d[4 * t + 2 * h + e] = value[e][t % 2];
    }
  }
}

// Adds up what belongs to one sample: over parities, e and lanes of the quad, as far as they share it.
__device__ __forceinline__ void sum_samples(float (&sum)[2][2], int samples_log2) {
  if (samples_log2 == 0) {
    float all = (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]);
    all += __shfl_xor_sync(~0u, all, 1);
    all += __shfl_xor_sync(~0u, all, 2);
    sum[0][0] = sum[0][1] = sum[1][0] = sum[1][1] = all;
  } else if (samples_log2 <= 3) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& own = sum[e][0];
      own += sum[e][1];
      if (samples_log2 <= 2) own += __shfl_xor_sync(~0u, own, 2);
      if (samples_log2 <= 1) own += __shfl_xor_sync(~0u, own, 1);
      sum[e][1] = own;
    }
  }
}

// The spread of every (row, sample), without its count, of a warpgroup's block, had `bias` been added to the rows of h
// = 0 and 1 -> table[64][samples]. The counts follow from the tile. Rows from `rows` on are of no account. Accumulators
// that are no outputs are overwritten. Neighbouring instructions belong to different sums, so that none waits for the
// one before.
template <int kTiles8>
__device__ __forceinline__ void row_statistics(float (&d)[4 * kTiles8], const Fragment& at, int samples_log2,
                                               const ValidColumns& valid, const float (&bias)[2], int rows,
                                               float2* table) {
  const int samples = 1 << samples_log2;
  at_scales([&](const Scale& scale) {
    const float factor = scale.factor();
    unsigned others = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float mean[2][2] = {}, m2[2][2] = {};  // [e][parity]
      if (!valid.whole) fill_invalid<kTiles8>(d, at, h, valid, mean);
#pragma unroll
      for (int i = 0; i < 2 * kTiles8; ++i) {
        float& sum = mean[i % 2][i / 2 % 2];
        sum = fmaf(d[i / 2 * 4 + 2 * h + i % 2], factor, sum);
      }
      sum_samples(mean, samples_log2);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        mean[i / 2][i % 2] = divide(mean[i / 2][i % 2], static_cast<float>(valid.end[i / 2][i % 2] >> samples_log2));
      }
      if (!valid.whole) {
        const float inverse = scale.inverse();
        const float unscaled[2][2] = {{mean[0][0] * inverse, mean[0][1] * inverse},
                                      {mean[1][0] * inverse, mean[1][1] * inverse}};
        fill_invalid<kTiles8>(d, at, h, valid, unscaled);
      }
#pragma unroll
      for (int i = 0; i < 2 * kTiles8; ++i) {
        const float distance = fmaf(d[i / 2 * 4 + 2 * h + i % 2], factor, -mean[i % 2][i / 2 % 2]);
        float& sum = m2[i % 2][i / 2 % 2];
        sum = fmaf(distance, distance, sum);
      }
      sum_samples(m2, samples_log2);
      float2* row = table + ((at.row + 8 * h) << samples_log2);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int e = i % 2, parity = i / 2, sample = 2 * at.quad + e + 8 * parity;
        const Moments m = {static_cast<float>(valid.end[e][parity] >> samples_log2), mean[e][parity], m2[e][parity]};
        if (sample >= samples || !scale.suits(m)) continue;
        const Spread s = scale.spread(m);
        row[sample] = make_float2(s.mean + bias[h], s.m2);
        if (at.row + 8 * h < rows) others |= scale.others(m);
      }
    }
    return others;
  });
}

// Rows [first, end) of one sample, `count` values each, at a scale, merged by 2^lanes_log2 neighbouring lanes, of which
// this is `lane`. Means are averaged as distances from one of them, which loses nothing where all are large.
__device__ __forceinline__ Moments merge_rows(const float2* table, const Scale& scale, int samples_log2, int sample,
                                              int first, int end, float count, int lanes_log2, int lane) {
  const auto rows = static_cast<float>(end - first);
  const float factor = scale.factor(), base = first < end ? table[(first << samples_log2) + sample].x * factor : 0.0f;
  float sum = 0;
#pragma unroll 1
  for (int row = first + lane; row < end; row += 1 << lanes_log2) {
    sum += fmaf(table[(row << samples_log2) + sample].x, factor, -base);
  }
  const float mean = base + divide(sum_lanes(sum, lanes_log2), rows);
  float m2 = 0;
#pragma unroll 1
  for (int row = first + lane; row < end; row += 1 << lanes_log2) {
    const float2 spread = table[(row << samples_log2) + sample];
    const Moments own = scale.moments({count, spread.x, spread.y});
    const float distance = own.mean - mean;
    m2 += fmaf(distance * distance, count, own.m2);
  }
  return {rows * count, mean, sum_lanes(m2, lanes_log2)};
}

// One part in each of 2^lanes_log2 neighbouring lanes, each of them the `share`th of `count` values in all. Distances
// are taken from the first lane's mean, so that one round of sums serves mean and squares.
__device__ __forceinline__ Moments merge_lanes(const Moments& part, float share, float count, int lanes_log2) {
  const float base = __shfl_sync(~0u, part.mean, 0, 1 << lanes_log2), distance = part.mean - base;
  float mean = share * distance, m2 = fmaf(distance * distance, part.count, part.m2);
#pragma unroll
  for (int k = 0; k < 5; ++k) {
    if (k >= lanes_log2) break;
    mean += __shfl_xor_sync(~0u, mean, 1 << k);
    m2 += __shfl_xor_sync(~0u, m2, 1 << k);
  }
  m2 = fmaf(-count * mean, mean, m2);
  return {count, base + mean, m2 < 0 ? 0.0f : m2};
}

}  // namespace convnorm::cuda
