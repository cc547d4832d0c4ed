// Division by what a launch knows: the host gives reciprocals, because kernels take 20 to 30 instructions for each.
#pragma once

#include <cstdint>

namespace convnorm::cuda {

// n / d for n * d < 2^32.
struct Divisor {
  uint32_t value = 1;
  uint32_t magic = 0;  // ceil(2^32 / value)

  Divisor() = default;
  explicit Divisor(uint32_t d) : value(d), magic(static_cast<uint32_t>(((uint64_t{1} << 32) + d - 1) / d)) {}
#ifdef __CUDACC__
  __device__ __forceinline__ uint32_t divide(uint32_t n) const { return value == 1 ? n : __umulhi(n, magic); }
#endif
};

// n / d for any n.
struct WideDivisor {
  uint32_t value = 1;
  uint64_t magic = 0;  // ceil(2^64 / value)

  WideDivisor() = default;
  explicit WideDivisor(uint32_t d) : value(d), magic(d == 1 ? 0 : ~uint64_t{0} / d + 1) {}
#ifdef __CUDACC__
  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    return value == 1 ? n : static_cast<uint32_t>(__umul64hi(n, magic));
  }
#endif
};

}  // namespace convnorm::cuda
