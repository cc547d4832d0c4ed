// Launches that begin before their predecessor ends (sm_90 and newer): everything before the wait must not read what
// the predecessor writes.
#pragma once

#include "kernels/cuda/ptx/cluster.cuh"

namespace convnorm::cuda {

__device__ __forceinline__ void let_successor_begin() {
#if __CUDA_ARCH__ >= 900
  ptx::launch_dependents();
#endif
}

__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  ptx::wait_for_predecessors();
#endif
}

}  // namespace convnorm::cuda
