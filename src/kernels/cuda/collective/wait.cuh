// Waiting for other threads and other CTAs. A wait that takes seconds is a fault of the library: builds without NDEBUG
// say which one and trap; release builds wait on, unless CONVNORM_TRAP_ON_STALL asks for the trap alone, which costs
// little.
#pragma once

#include <cstdint>
#include <cstdio>

#include "kernels/cuda/ptx/barrier.cuh"

namespace convnorm::cuda {

// Counts failed attempts; each takes at least tens of cycles, so the limit is some seconds.
class Patience {
 public:
  __device__ __forceinline__ void lose(const char* what) {
#if !defined(NDEBUG) || defined(CONVNORM_TRAP_ON_STALL)
    if (++attempts_ < kMostAttempts) return;
#ifndef NDEBUG
    printf("convnorm: CTA %d thread %d has waited for seconds for %s\n", blockIdx.x, threadIdx.x, what);
#endif
    __trap();
#endif
  }

 private:
#if !defined(NDEBUG) || defined(CONVNORM_TRAP_ON_STALL)
  static constexpr int kMostAttempts = 20'000'000;
  int attempts_ = 0;
#endif
};

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity, const char* what) {
  Patience patience;
  while (!ptx::mbarrier_try_wait(barrier, parity)) patience.lose(what);
}

}  // namespace convnorm::cuda
