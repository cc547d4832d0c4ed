// The one way in which kernels are launched, and in which CUDA's errors become Failures.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

namespace convnorm::cuda {

// Throws Failure(DEVICE_ERROR) with the error's name, its text and `what` was being done.
void check(cudaError_t result, const char* what);

struct LaunchShape {
  dim3 grid = {1, 1, 1};    // CTAs
  dim3 block = {1, 1, 1};   // threads
  unsigned cluster = 0;     // neighbouring CTAs that can reach each other's shared memory; 0: none can, not even itself
  size_t shared_bytes = 0;  // dynamic; beyond 48 KiB the kernel is opted in
  bool cooperative = false;   // all CTAs run at the same time, or the launch fails
  bool programmatic = false;  // may start before its predecessor ends: the kernel itself waits (griddepcontrol.wait)
};

// `arguments`: addresses of the kernel's parameters. `name` appears in messages.
void launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                   void** arguments);

template <class... Parameters, class... Given>
void launch(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            const Given&... given) {
  static_assert(sizeof...(Parameters) == sizeof...(Given));
  [&](std::remove_const_t<Parameters>... parameters) {
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
    launch_kernel(name, reinterpret_cast<const void*>(kernel), shape, stream, addresses);
  }(given...);
}

// CTAs of `kernel` that one SM holds at the same time.
int occupancy(const char* name, const void* kernel, int threads, size_t shared_bytes);

}  // namespace convnorm::cuda
