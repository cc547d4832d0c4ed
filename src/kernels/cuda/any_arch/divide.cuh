// Quotient and remainder of indices: 32 bits wide where both fit, which costs a fifth.
#pragma once

#include <cstdint>

namespace convnorm::cuda {

struct Division {
  int64_t quotient, remainder;
};

// Of numbers that are not negative.
__device__ __forceinline__ Division divide(int64_t value, int64_t divisor) {
  if (((value | divisor) >> 32) == 0) {
    const auto narrow = static_cast<uint32_t>(value), by = static_cast<uint32_t>(divisor);
    const uint32_t quotient = narrow / by;
    return {quotient, narrow - quotient * by};
  }
  const int64_t quotient = value / divisor;
  return {quotient, value - quotient * divisor};
}

}  // namespace convnorm::cuda
