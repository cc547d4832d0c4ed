// Reading the inputs under some positions.
#pragma once

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/moments/config.hpp"

namespace convnorm::cuda::moments {

// put(i, x[from + i]) for i in [0, width), padding included, by all threads of a CTA; `step` is that from an input of the
// channel to the next. Several inputs a thread are on their way before the first is used.
template <class Element, class Put>
__device__ __forceinline__ void read_inputs(const Arguments& a, const Element* x, int64_t step, int64_t from, int width,
                                            int64_t length, const Put& put) {
  constexpr int kAtOnce = 8;
  const bool inside = from >= 0 && from + width <= length;
  for (int first = static_cast<int>(threadIdx.x); first < width; first += kAtOnce * kThreads) {
    Element value[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + j * kThreads;
      value[j] = from_float<Element>(0.0f);
      if (i >= width) continue;
      const int64_t at = inside ? from + i : input_position(a, from + i, length);
      if (at >= 0) value[j] = __ldg(x + at * step);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (first + j * kThreads < width) put(first + j * kThreads, value[j]);
    }
  }
}

}  // namespace convnorm::cuda::moments
