#include "kernels/cuda/launch.hpp"

#include <array>
#include <map>
#include <utility>

#include "descriptor/text.hpp"

namespace convnorm::cuda {

namespace {

constexpr size_t kSharedWithoutOptIn = 48 << 10;

// What is asked about a kernel on one device once by every thread: at every launch it would cost a good part of it.
struct KernelFacts {
  int static_shared_bytes;
  bool waits_for_predecessors;
  bool opted_in = false;
};

KernelFacts& facts_of(const char* name, const void* kernel, int device) {
  // Code for older GPUs, of which the driver makes code for newer ones, has no griddepcontrol.wait.
  constexpr int kFirstThatWaits = 90;
  thread_local std::map<std::pair<int, const void*>, KernelFacts> known;
  const auto found = known.find({device, kernel});
  if (found != known.end()) return found->second;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), name);
  return known[{device, kernel}] = {.static_shared_bytes = static_cast<int>(attributes.sharedSizeBytes),
                                    .waits_for_predecessors = attributes.ptxVersion >= kFirstThatWaits};
}

// Of the current device, opted in to what a launch needs.
const KernelFacts& prepared(const char* name, const void* kernel, size_t shared_bytes) {
  int device = 0;
  check(cudaGetDevice(&device), name);
  KernelFacts& facts = facts_of(name, kernel, device);
  if (shared_bytes <= kSharedWithoutOptIn || facts.opted_in) return facts;
  // All that the device has, not what this launch needs: the limit belongs to the kernel, and a smaller launch of it on
  // another thread would lower it between this call and the launch.
  int most = 0;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), name);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most - facts.static_shared_bytes),
        name);
  facts.opted_in = true;
  return facts;
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
  const KernelFacts& facts = prepared(name, kernel, shape.shared_bytes);
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
  if (shape.programmatic && facts.waits_for_predecessors) {
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
  prepared(name, kernel, shared_bytes);
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes), name);
  return blocks;
}

}  // namespace convnorm::cuda
