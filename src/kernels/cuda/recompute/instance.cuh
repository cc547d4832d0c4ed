// Launches the instance of one element type and depth; each file of instances/ compiles one.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/recompute/kernel.cuh"

namespace convnorm::cuda::recompute {

template <class Element, int kK16, Ops kOps>
void launch_instance(const Parameters& p, cudaStream_t stream) {
  launch("launching recompute", recompute_kernel<Element, kK16, kOps>,
         {.grid = dim3(static_cast<unsigned>(p.config.grid())),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<size_t>(p.shared.bytes),
          .cooperative = p.config.words() > 0,
          .programmatic = p.given.dependent},
         stream, p);
}

}  // namespace convnorm::cuda::recompute
