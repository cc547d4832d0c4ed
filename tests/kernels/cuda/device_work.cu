#include "kernels/cuda/device_work.hpp"

namespace convnorm::test {

namespace {

// So much that no other CTA fits beside it.
constexpr int kSharedBytes = 200 << 10;

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void hold(unsigned microseconds) {
  const unsigned long long start = nanoseconds();
  while (nanoseconds() - start < 1000ull * microseconds) __nanosleep(1000);
}

__global__ void compare(const unsigned* one, const unsigned* other, size_t words, unsigned* different) {
  unsigned found = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += size_t{gridDim.x} * blockDim.x)
    found += one[i] != other[i];
  if (found != 0) atomicAdd(different, found);
}

}  // namespace

cudaError_t compare_words(const void* one, const void* other, size_t words, unsigned* different, cudaStream_t stream) {
  compare<<<32, 256, 0, stream>>>(static_cast<const unsigned*>(one), static_cast<const unsigned*>(other), words,
                                  different);
  return cudaGetLastError();
}

cudaError_t occupy(int ctas, unsigned microseconds, cudaStream_t stream) {
  int most = 0, device = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int bytes = most < kSharedBytes ? most : kSharedBytes;
  if (const cudaError_t error = cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return error;
  hold<<<ctas, 1024, bytes, stream>>>(microseconds);
  return cudaGetLastError();
}

}  // namespace convnorm::test
