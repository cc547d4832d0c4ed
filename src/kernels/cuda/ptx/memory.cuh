// Global memory: loads that stay where they are written, and words that several CTAs exchange.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/ptx/word.hpp"

namespace convnorm::cuda::ptx {

// The bits of an element, or zero where it is not wanted, in which case nothing is read. Volatile, so that the compiler
// issues many loads before it uses the first.
__device__ __forceinline__ uint32_t load_bits(const float* source, bool wanted) {
  uint32_t bits;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n"
      "@p ld.global.nc.b32 %0, [%1];\n}"
      : "=r"(bits)
      : "l"(source), "r"(static_cast<int>(wanted)));
  return bits;
}

// As load_bits(), two neighbouring 16-bit elements or one of 32 bits, at a multiple of four bytes; read once.
__device__ __forceinline__ uint32_t load_word(const void* source, bool wanted) {
  uint32_t bits;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n"
      "@p ld.global.nc.L1::no_allocate.b32 %0, [%1];\n}"
      : "=r"(bits)
      : "l"(source), "r"(static_cast<int>(wanted)));
  return bits;
}

// Straight into a register of 32 bits: widening one of 16 would wait for the load where it is issued.
__device__ __forceinline__ uint32_t load_half_bits(const void* source, bool wanted) {
  uint32_t bits;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n"
      "@p ld.global.nc.u16 %0, [%1];\n}"
      : "=r"(bits)
      : "l"(source), "r"(static_cast<int>(wanted)));
  return bits;
}
__device__ __forceinline__ uint32_t load_bits(const __half* source, bool wanted) {
  return load_half_bits(source, wanted);
}
__device__ __forceinline__ uint32_t load_bits(const __nv_bfloat16* source, bool wanted) {
  return load_half_bits(source, wanted);
}

// Brings the line of 128 bytes at `source` into the second-level cache; nobody waits for it.
__device__ __forceinline__ void prefetch_l2_line(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(source));
}

// 16 bytes of shared memory, behind whatever was waited for before.
__device__ __forceinline__ uint4 load_shared(uint32_t source) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(source)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed(Word* destination, Word word) {
  asm volatile("{\n.reg .b128 v;\nmov.b128 v, {%1, %2};\nst.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(destination),
               "l"(word.tag), "l"(word.payload)
               : "memory");
}

__device__ __forceinline__ Word load_relaxed(const Word* source) {
  Word word;
  asm volatile("{\n.reg .b128 v;\nld.relaxed.gpu.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;\n}"
               : "=l"(word.tag), "=l"(word.payload)
               : "l"(source)
               : "memory");
  return word;
}

__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* source) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(source) : "memory");
  return value;
}

// A word that other CTAs may write, or zero where it is not wanted.
__device__ __forceinline__ uint64_t load_relaxed_or_zero(const uint64_t* source, bool wanted) {
  uint64_t v;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b64 %0, 0;\n"
      "@p ld.relaxed.gpu.global.b64 %0, [%1];\n}"
      : "=l"(v)
      : "l"(source), "r"(static_cast<int>(wanted))
      : "memory");
  return v;
}

// 16 bytes of shared memory, by their shared address, of which a generic pointer would be made anew where it is used.
__device__ __forceinline__ float4 load_shared_128(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ float2 load_shared_64(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared_64(uint32_t address, float v0, float v1) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(v0), "f"(v1) : "memory");
}

__device__ __forceinline__ void store_shared_128(uint32_t address, float v0, float v1, float v2, float v3) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v0), "f"(v1), "f"(v2), "f"(v3)
               : "memory");
}

}  // namespace convnorm::cuda::ptx
