// Parameters of a tile's channels. They lie in shared memory: beside 64 accumulators there are no registers for them, and
// what the compiler spills comes back from the second-level cache.
#pragma once

#include "kernels/cuda/collective/ops.cuh"
#include "kernels/cuda/epilogue.cuh"

namespace convnorm::cuda {

// Of one channel.
struct alignas(16) RowParameters {
  float gamma;
  float beta;  // NaN if the packed weight is not this plan's
  // What the norm does not take out again: the bias beyond that of the group's first channel. It moves the row's mean and
  // is never added to its values, where a large one would cost digits; so means are taken as if that bias were 0.
  float bias;
  float unused;
};

// [64 * blocks]
template <class Parameters>
__device__ __forceinline__ RowParameters* row_parameters(const Parameters& p, unsigned char* shared) {
  return reinterpret_cast<RowParameters*>(shared + p.plan.rows);
}

// Loads rows [begin, end) of a tile that starts at channel `first`, of which there are o, by threads `thread` of `threads`.
template <class T>
__device__ __forceinline__ void load_row_parameters(const typename T::Parameters& p, unsigned char* shared, int first, int begin,
                                                    int end, int thread, int threads) {
  using Element = typename T::Element;
  const Arguments& a = p.arguments;
  const float fault = packed_fault(a);
#pragma unroll 1
  for (int row = begin + thread; row < end; row += threads) {
    const int channel = first + row;
    RowParameters own = {1.0f, fault, 0.0f, 0.0f};
    if (channel < a.o) {
      if (a.gamma != nullptr) own.gamma = load_parameter<Element>(a, a.gamma, channel);
      if (a.beta != nullptr) own.beta += load_parameter<Element>(a, a.beta, channel);
      if (a.bias != nullptr && a.pre == CONVNORM_NONE) {
        own.bias = load_parameter<Element>(a, a.bias, channel);
        if (a.groups > 0) {
          const uint32_t group = p.config.group_rows.divide(channel);
          own.bias -= load_parameter<Element>(a, a.bias, group * p.config.group_rows.value);
        } else {
          own.beta += own.bias;
        }
      }
    }
    row_parameters(p, shared)[row] = own;
  }
}

}  // namespace convnorm::cuda
