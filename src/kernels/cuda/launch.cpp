#include "kernels/cuda/launch.hpp"

#include <array>

#include "descriptor/text.hpp"

namespace convnorm::cuda {

namespace {

constexpr size_t kSharedWithoutOptIn = 48 << 10;

void opt_in(const char* name, const void* kernel, size_t shared_bytes) {
  if (shared_bytes <= kSharedWithoutOptIn) return;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), name);
  if (static_cast<size_t>(attributes.maxDynamicSharedSizeBytes) >= shared_bytes) return;
  // All that the device has, not what this launch needs: the limit belongs to the kernel, and a smaller launch of it on
  // another thread would lower it between this call and the launch.
  int device = 0;
  int most = 0;
  check(cudaGetDevice(&device), name);
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), name);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - static_cast<int>(attributes.sharedSizeBytes)),
        name);
}

// Code for older GPUs, of which the driver makes code for newer ones, has no griddepcontrol.wait.
bool waits_for_predecessors(const char* name, const void* kernel) {
  constexpr int kFirst = 90;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), name);
  return attributes.ptxVersion >= kFirst;
}

}  // namespace

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  // Some errors stay with the thread until they are read, and would be blamed on the caller's next call.
  cudaGetLastError();
  fail(CONVNORM_DEVICE_ERROR, "{}: {} ({})", what, cudaGetErrorName(result), cudaGetErrorString(result));
}

void launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                   void** arguments) {
  opt_in(name, kernel, shape.shared_bytes);
  std::array<cudaLaunchAttribute, 3> attributes{};
  unsigned count = 0;
  if (shape.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  if (shape.cluster > 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = shape.cluster;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  if (shape.programmatic && waits_for_predecessors(name, kernel)) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = count;
  check(cudaLaunchKernelExC(&config, kernel, arguments), name);
}

int occupancy(const char* name, const void* kernel, int threads, size_t shared_bytes) {
  opt_in(name, kernel, shared_bytes);
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes), name);
  return blocks;
}

}  // namespace convnorm::cuda
