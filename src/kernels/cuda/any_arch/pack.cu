#include "kernels/cuda/any_arch/divide.cuh"
#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda::any_arch {

namespace {

template <class Element>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const Element* weight, float* packed, int64_t elements, int64_t depth, int64_t channels) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += int64_t{gridDim.x} * kThreads) {
    const Division channel = divide(i, channels), product = divide(channel.quotient, depth);
    packed[i] = to_float(weight[(product.quotient * channels + channel.remainder) * depth + product.remainder]);
  }
}

}  // namespace

void pack(const Arguments& a, const void* weight, float* packed, cudaStream_t stream) {
  const int64_t depth = a.c_per_conv_group * a.k, elements = a.o * depth;
  with_device_element(a.dtype, [&](auto element) {
    using Element = decltype(element);
    launch("launching any_arch's packing", pack_kernel<Element>,
           {.grid = dim3(grid_for((elements + kThreads - 1) / kThreads)), .block = dim3(kThreads)}, stream,
           static_cast<const Element*>(weight), packed, elements, depth, a.o_per_conv_group);
  });
}

}  // namespace convnorm::cuda::any_arch
