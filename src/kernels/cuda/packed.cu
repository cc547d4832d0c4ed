#include <algorithm>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda {

namespace {

__global__ void header_kernel(PackedHeader* header, uint64_t fingerprint) { header->fingerprint = fingerprint; }

constexpr int kThreads = 256;

template <class Element>
__global__ void widen_kernel(const Element* from, float* to, int64_t elements) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += step) to[i] = to_float(from[i]);
}

}  // namespace

void widen(const void* from, convnorm_dtype dtype, float* to, int64_t elements, cudaStream_t stream) {
  constexpr int64_t kMostCtas = 1 << 16;
  const int64_t ctas = std::clamp<int64_t>((elements + kThreads - 1) / kThreads, 1, kMostCtas);
  with_device_element(dtype, [&](auto type) {
    using Element = decltype(type);
    launch("widening a weight", widen_kernel<Element>,
           {.grid = dim3(static_cast<unsigned>(ctas)), .block = dim3(kThreads)}, stream,
           static_cast<const Element*>(from), to, elements);
  });
}

void write_header(PackedHeader* header, uint64_t fingerprint, cudaStream_t stream) {
  launch("writing the header of a packed weight", header_kernel, {}, stream, header, fingerprint);
}

}  // namespace convnorm::cuda
