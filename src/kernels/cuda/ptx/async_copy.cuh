// Copies from global to shared memory that hold no registers and are waited for in groups, in order (cp.async). What a
// thread has copied and waited for, it may read itself.
#pragma once

#include <cstdint>

namespace convnorm::cuda::ptx {

// 16 bytes that are read once by the whole launch.
__device__ __forceinline__ void copy_async(uint32_t shared_destination, const void* source) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_destination), "l"(source) : "memory");
}

// A policy for copies of what is not needed again: it leaves the second-level cache before all else.
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// And one that asks for nothing.
__device__ __forceinline__ uint64_t evict_normal_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void copy_async(uint32_t shared_destination, const void* source, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_destination), "l"(source),
               "l"(policy)
               : "memory");
}

// 4, 8 or 16 bytes, of which the first `wanted` are read and the others are zeros.
template <int kBytes>
__device__ __forceinline__ void copy_async_some(uint32_t shared_destination, const void* source, int wanted) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_destination), "l"(source), "r"(wanted)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_destination), "l"(source), "n"(kBytes),
                 "r"(wanted)
                 : "memory");
  }
}

// All of them or zeros.
template <int kBytes>
__device__ __forceinline__ void copy_async_or_zeros(uint32_t shared_destination, const void* source, bool wanted) {
  copy_async_some<kBytes>(shared_destination, source, wanted ? kBytes : 0);
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most kPending of the groups are left.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace convnorm::cuda::ptx
