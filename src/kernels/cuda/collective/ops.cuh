// The ops after the norm on eight values of one row: the list is walked at run time, so the code of every op exists
// once.
#pragma once

#include "kernels/cuda/collective/fragment.cuh"
#include "kernels/cuda/epilogue.cuh"

namespace convnorm::cuda {

// A parameter of the norm or of an op. Its type is fp32 or the tensors' own.
template <class Element>
__device__ __forceinline__ float load_parameter(const Arguments& a, const void* parameters, int64_t index) {
  if constexpr (sizeof(Element) == 2) {
    if (a.param_dtype != CONVNORM_F32) return load<Element>(parameters, index);
  }
  return load<float>(parameters, index);
}

// Ops [first, last) of the list, none of which is a glu. v[2 * t + e] is column (first_tile + t, e) of channel `row`.
template <class Element>
__device__ __forceinline__ void apply_ops(const Arguments& a, int first, int last, float (&v)[8], Fragment at,
                                          const Columns& columns, int row, int first_tile) {
  if (row >= a.o) return;
#pragma unroll 1
  for (int s = first; s < last; ++s) {
    const PostOp& stage = a.post[s];
    // Addresses are cheap, but those of all ops, computed ahead of the loop, do not fit in registers.
    asm volatile("" : "+r"(row), "+r"(first_tile), "+r"(at.quad));
    const int64_t channel = row;
    if (stage.op == CONVNORM_FILM) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // the four classes of columns
        const int64_t n = columns.first_sample + columns.sample(at.column(i / 2, i % 2));
        if (n >= a.n) continue;
        const float scale = load_parameter<Element>(a, a.film_scale, n * stage.channels + channel);
        const float shift = load_parameter<Element>(a, a.film_shift, n * stage.channels + channel);
        v[i] = fmaf(v[i], scale, shift);
        v[i + 4] = fmaf(v[i + 4], scale, shift);
      }
    } else if (stage.op == CONVNORM_ADD) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int column = at.column(first_tile + i / 2, i % 2);
        const int64_t n = columns.first_sample + columns.sample(column);
        const int64_t l = columns.first_position + columns.position(column);
        if (n < a.n && l < a.l_out) v[i] += load<Element>(a.residual, y_index(a, {n, channel, l, true}));
      }
    } else {
      float argument = stage.param;
      if (stage.op == CONVNORM_PRELU) {
        argument = load_parameter<Element>(a, a.post_slope, a.post_slope_per_channel ? channel : 0);
      }
      detail::apply_formula(stage.op, v, [&](int) { return argument; });
    }
  }
}

// The whole list.
template <class Element>
__device__ __forceinline__ void apply_ops(const Arguments& a, float (&v)[8], Fragment at, const Columns& columns,
                                          int row, int first_tile) {
  apply_ops<Element>(a, 0, a.post_count, v, at, columns, row, first_tile);
}

}  // namespace convnorm::cuda
