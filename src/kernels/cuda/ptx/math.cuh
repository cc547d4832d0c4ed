// The special-function unit.
#pragma once

namespace convnorm::cuda::ptx {

// 2^x to within two ulp; 0 where the result would be subnormal.
__device__ __forceinline__ float exp2_approximate(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// max(x, 0), and NaN of NaN.
__device__ __forceinline__ float relu_of(float x) {
  float most;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(most) : "f"(x));
  return most;
}

// 1 / x to within an ulp; 0 where the result would be subnormal.
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

}  // namespace convnorm::cuda::ptx
