// A parameter that is asked for long before it is used.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "convnorm/convnorm.h"
#include "kernels/cuda/ptx/load.cuh"

namespace convnorm::cuda {

// Parameters are fp32 or, beside 16-bit tensors, of the tensors' type `Element`, which is known at run time. A second load
// into one register would wait for the first: so both halves of a wide one are loaded, each into a register of its own.
template <class Element>
class Requested {
 public:
  // Element `index` of `tensor`; without it, or where it is not wanted, 0.
  __device__ __forceinline__ void request(const void* tensor, int64_t index, int dtype, bool wanted) {
    wanted = wanted && tensor != nullptr;
    if constexpr (sizeof(Element) == 4) {
      ptx::load_32(static_cast<const uint32_t*>(tensor) + index, wanted, low_);
    } else {
      const bool wide = dtype == CONVNORM_F32;
      const char* from = static_cast<const char*>(tensor) + (index << (wide ? 2 : 1));
      low_ = ptx::load_16(from, wanted);
      high_ = ptx::load_16(from + 2, wanted && wide);
    }
  }

  // Volatile, so that nobody waits for the halves before they are used.
  __device__ __forceinline__ float value(int dtype) const {
    if constexpr (sizeof(Element) == 4) return __uint_as_float(low_);
    uint32_t bits;
    asm volatile("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(bits) : "r"(low_), "r"(high_));
    if (dtype == CONVNORM_F32) return __uint_as_float(bits);
    if constexpr (std::is_same_v<Element, __half>) return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
    return __uint_as_float(bits << 16);
  }

 private:
  uint32_t low_ = 0, high_ = 0;
};

}  // namespace convnorm::cuda
