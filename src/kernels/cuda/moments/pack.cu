#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/recompute/launch.hpp"

namespace convnorm::cuda::moments {

namespace {

struct Weight {
  const void* values;  // (C_out, columns)
  int64_t channels;    // of a conv group
  int columns;
};

template <class Element>
__global__ void __launch_bounds__(kThreads) plain_kernel(Weight w, float* plain, int64_t elements) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const int64_t channel = i % w.channels, column = i / w.channels % w.columns, conv_group = i / w.channels / w.columns;
  plain[i] = to_float(static_cast<const Element*>(w.values)[(conv_group * w.channels + channel) * w.columns + column]);
}

}  // namespace

void pack(const Arguments& a, const Config& config, const void* weight, void* packed, cudaStream_t stream) {
  recompute::pack(a, config.stream, weight, packed, stream);
  const PackedPlan plan = packed_plan(config, a.conv_groups, a.c_per_conv_group, a.o_per_conv_group);
  const Weight w = {weight, a.o_per_conv_group, config.columns};
  const int64_t elements = a.o * config.columns;
  with_device_element(a.dtype, [&](auto type) {
    using Element = decltype(type);
    launch("launching moments' copying of weights", plain_kernel<Element>,
           {.grid = dim3(static_cast<unsigned>((elements + kThreads - 1) / kThreads)), .block = dim3(kThreads)}, stream,
           w, reinterpret_cast<float*>(static_cast<unsigned char*>(packed) + plan.plain), elements);
  });
}

}  // namespace convnorm::cuda::moments
