// The special-function unit.
#pragma once

namespace convnorm::cuda::ptx {

// 2^x to within two ulp; 0 where the result would be subnormal.
__device__ __forceinline__ float exp2_approximate(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace convnorm::cuda::ptx
