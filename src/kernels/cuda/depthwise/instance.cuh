// Launches the instance of one element type and walk; each file of instances/ compiles one.
#pragma once

#include "kernels/cuda/depthwise/kernel.cuh"
#include "kernels/cuda/depthwise/launch.cuh"
#include "kernels/cuda/depthwise/resident.cuh"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda::depthwise {

template <class Element, Walk kWalk>
void launch_instance(const Parameters& p, cudaStream_t stream) {
  using T = Traits<Element, kWalk>;
  void (*kernel)(Parameters) = depthwise_kernel<T>;
  if constexpr (kWalk == Walk::kSteps || kWalk == Walk::kVectors) {
    if (p.config.resident) kernel = resident_kernel<T>;
  }
  launch("launching depthwise", kernel,
         {.grid = dim3(static_cast<unsigned>(p.config.grid())),
          .block = dim3(32 * kWarps),
          .shared_bytes = static_cast<size_t>(p.plan.bytes),
          .cooperative = p.config.team > 1,
          .programmatic = true},
         stream, p);
}

}  // namespace convnorm::cuda::depthwise
