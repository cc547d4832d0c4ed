// Loads from global memory that are issued where they are written, many before the first is used. Those with `wanted`
// read nothing where it is false, and give zeros.
#pragma once

#include <cstdint>

namespace convnorm::cuda::ptx {

__device__ __forceinline__ uint16_t load_16(const void* source, bool wanted) {
  uint16_t v;
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b16 %0, 0;\n@p ld.global.b16 %0, [%1];\n}"
               : "=h"(v)
               : "l"(source), "r"(static_cast<int>(wanted)));
  return v;
}

// Into a whole register, so that nothing has to wait for the value to widen it.
__device__ __forceinline__ void load_16(const void* source, bool wanted, uint32_t& v) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.u16 %0, [%1];\n}"
               : "=r"(v)
               : "l"(source), "r"(static_cast<int>(wanted)));
}

__device__ __forceinline__ void load_32(const void* source, bool wanted, uint32_t& v) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.b32 %0, [%1];\n}"
               : "=r"(v)
               : "l"(source), "r"(static_cast<int>(wanted)));
}

__device__ __forceinline__ void load_64(const void* source, bool wanted, uint32_t& v0, uint32_t& v1) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
      "@p ld.global.v2.b32 {%0, %1}, [%2];\n}"
      : "=r"(v0), "=r"(v1)
      : "l"(source), "r"(static_cast<int>(wanted)));
}

__device__ __forceinline__ void load_128(const void* source, bool wanted, uint32_t& v0, uint32_t& v1, uint32_t& v2,
                                         uint32_t& v3) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=r"(v0), "=r"(v1), "=r"(v2), "=r"(v3)
      : "l"(source), "r"(static_cast<int>(wanted)));
}

// 16 bytes that are read once by the whole launch and that no kernel which may still run writes.
__device__ __forceinline__ uint4 load_once(const void* source) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(source));
  return v;
}

// Brings `bytes`, a multiple of 16, into the L2 cache; nobody waits for it.
__device__ __forceinline__ void prefetch_l2(const void* source, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes));
}

}  // namespace convnorm::cuda::ptx
