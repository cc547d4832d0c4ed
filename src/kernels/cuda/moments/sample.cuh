// Of one sample: how many outputs it has, and what the sums of its inputs are taken of distances from.
#pragma once

#include "kernels/cuda/recompute/inputs.cuh"

namespace convnorm::cuda::moments {

// As sample_length() and valid_outputs(), in 32 bits, which hold what plans take: dividing takes a fifth.
__device__ __forceinline__ int outputs_of(const Arguments& a, int n) {
  if (a.lengths == nullptr) return static_cast<int>(a.l_out);
  const int room = static_cast<int>(sample_length(a, n) + a.pad_left + a.pad_right - (a.dilation * (a.k - 1) + 1));
  return room < 0 ? 0 : room / static_cast<int>(a.stride) + 1;
}

// The middle one of three inputs of a channel, as one alone may be set apart from all others. `row` is the channel's.
template <class Element>
__device__ __forceinline__ float pilot_of(const recompute::Source<Element>& x, const Element* row) {
  if (x.length <= 0) return 0.0f;
  const float first = to_float(__ldg(row)), middle = to_float(__ldg(x.address(row, x.length / 2))),
              last = to_float(__ldg(x.address(row, x.length - 1)));
  const float least = fminf(first, middle), most = fmaxf(first, middle);
  const float pilot = fmaxf(least, fminf(most, last));
  return fabsf(pilot) < INFINITY ? pilot : 0.0f;
}

}  // namespace convnorm::cuda::moments
