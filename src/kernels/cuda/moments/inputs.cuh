// Reading the inputs under some positions.
#pragma once

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/moments/config.hpp"

namespace convnorm::cuda::moments {

// Where a conv group's inputs of one sample lie: channel, then position.
struct InputStrides {
  int64_t channel, position;
};

__device__ __forceinline__ InputStrides input_strides(const Arguments& a) {
  return a.layout == CONVNORM_NCL ? InputStrides{a.l, 1} : InputStrides{1, a.c};
}

template <class Element>
__device__ __forceinline__ const Element* first_input(const Arguments& a, int64_t n, int64_t conv_group) {
  const int64_t channel = conv_group * a.c_per_conv_group;
  return static_cast<const Element*>(a.x) +
         (a.layout == CONVNORM_NCL ? (n * a.c + channel) * a.l : n * a.l * a.c + channel);
}

// put(channel, i, input from + i) for i in [0, width) and all channels of a conv group, padding included, by all
// threads of a CTA. Several inputs a thread are on their way before the first is used.
template <class Element, class Put>
__device__ __forceinline__ void read_inputs(const Arguments& a, const Element* x, int64_t from, int width,
                                            int64_t length, const Put& put) {
  constexpr int kAtOnce = 8;
  const InputStrides strides = input_strides(a);
  const bool inside = from >= 0 && from + width <= length;
  const int channels = static_cast<int>(a.c_per_conv_group);
  int channel = 0, i = static_cast<int>(threadIdx.x);
  const auto settle = [&] {
    while (i >= width && channel < channels) i -= width, ++channel;
  };
  settle();
  while (channel < channels) {
    Element value[kAtOnce];
    const int first_channel = channel, first = i;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      value[j] = from_float<Element>(0.0f);
      if (channel < channels) {
        const int64_t at = inside ? from + i : input_position(a, from + i, length);
        if (at >= 0) value[j] = __ldg(x + channel * strides.channel + at * strides.position);
      }
      i += kThreads;
      settle();
    }
    channel = first_channel, i = first;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (channel < channels) put(channel, i, value[j]);
      i += kThreads;
      settle();
    }
  }
}

}  // namespace convnorm::cuda::moments
