// The ops before and after the norm on values of one row (sample, channel): parameters are one number each.
#pragma once

#include "kernels/cuda/collective/ops.cuh"

namespace convnorm::cuda {

// Where a row of values stands.
struct RowPlace {
  int64_t n, channel;
};

template <class Element, int N>
__device__ __forceinline__ void apply_row_pre(const Arguments& a, float (&v)[N], float slope) {
  if (a.pre == CONVNORM_RELU) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = Formulas<DeviceMath>::relu(v[i], 0);
  } else if (a.pre == CONVNORM_PRELU) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = Formulas<DeviceMath>::prelu(v[i], slope);
  }
}

// Ops [first, last) of the list, none of which is a glu, on kRows rows of N values. row(h) is the place of row h,
// position(i) that of values v[h][i], or negative where they are of no account.
template <class Element, int kRows, int N, class PlaceOf, class PositionOf>
__device__ __forceinline__ void apply_row_post(const Arguments& a, int first, int last, float (&v)[kRows][N],
                                               const PlaceOf& row, const PositionOf& position) {
#pragma unroll 1
  for (int s = first; s < last; ++s) {
    const PostOp& stage = a.post[s];
    // Addresses are cheap, but those of all ops, computed ahead of the loop, do not fit in registers: what the branches
    // compute depends on this zero, which the compiler does not know.
    int nothing = 0;
    asm volatile("" : "+r"(nothing));
    if (stage.op == CONVNORM_FILM) {
#pragma unroll
      for (int h = 0; h < kRows; ++h) {
        const RowPlace place = row(h);
        const int64_t at = place.n * stage.channels + place.channel + nothing;
        const float scale = load_parameter<Element>(a, a.film_scale, at);
        const float shift = load_parameter<Element>(a, a.film_shift, at);
#pragma unroll
        for (int i = 0; i < N; ++i) v[h][i] = fmaf(v[h][i], scale, shift);
      }
    } else if (stage.op == CONVNORM_ADD) {
      const int64_t step = a.layout == CONVNORM_NCL ? 1 : a.c_y;
#pragma unroll
      for (int h = 0; h < kRows; ++h) {
        const RowPlace place = row(h);
        const auto* residual =
            static_cast<const Element*>(a.residual) + y_index(a, {place.n, place.channel + nothing, 0, true});
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const int64_t l = position(i + nothing);
          if (l >= 0) v[h][i] += to_float(__ldg(residual + l * step));
        }
      }
    } else {
      float argument[kRows];
#pragma unroll
      for (int h = 0; h < kRows; ++h) argument[h] = stage.param;
      if (stage.op == CONVNORM_PRELU) {
#pragma unroll
        for (int h = 0; h < kRows; ++h) {
          const int64_t channel = row(h).channel + nothing;
          argument[h] = load_parameter<Element>(a, a.post_slope, a.post_slope_per_channel ? channel : 0);
        }
      }
      auto& all = reinterpret_cast<float(&)[kRows * N]>(v);
      detail::apply_formula(stage.op, all, [&](int i) { return argument[i / N]; });
    }
  }
}

}  // namespace convnorm::cuda
