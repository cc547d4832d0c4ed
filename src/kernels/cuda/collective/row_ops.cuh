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

// Ops [first, last) of the list, none of which is a glu. position(i) is that of v[i], or negative where v[i] is of no
// account.
template <class Element, int N, class PositionOf>
__device__ __forceinline__ void apply_row_post(const Arguments& a, int first, int last, float (&v)[N],
                                               const RowPlace& row, const PositionOf& position) {
#pragma unroll 1
  for (int s = first; s < last; ++s) {
    const PostOp& stage = a.post[s];
    if (stage.op == CONVNORM_FILM) {
      const int64_t at = row.n * stage.channels + row.channel;
      const float scale = load_parameter<Element>(a, a.film_scale, at);
      const float shift = load_parameter<Element>(a, a.film_shift, at);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = fmaf(v[i], scale, shift);
    } else if (stage.op == CONVNORM_ADD) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const int64_t l = position(i);
        if (l >= 0) v[i] += load<Element>(a.residual, y_index(a, {row.n, row.channel, l, true}));
      }
    } else {
      float argument = stage.param;
      if (stage.op == CONVNORM_PRELU) {
        argument = load_parameter<Element>(a, a.post_slope, a.post_slope_per_channel ? row.channel : 0);
      }
      detail::apply_formula(stage.op, v, [&](int) { return argument; });
    }
  }
}

}  // namespace convnorm::cuda
