// The GELU of raw audio: the loop around it is what such a layer takes.
#pragma once

#include "kernels/cuda/ptx/math.cuh"

namespace convnorm::cuda::recompute {

// GELU of 2 h: h + |h| (1 - 2 Phi(-|2 h|)), the term of Phi as 2^P(|h|) with a polynomial of degree 5: absolute error
// 5e-7, in eight instructions, which are what such a layer takes. Infinity gives itself, and minus infinity NaN, as in
// PyTorch.
__device__ __forceinline__ float gelu_of_twice(float h) {
  const float u = fabsf(h);
  float p = fmaf(u, -1.514540799e-02f, 1.133513749e-01f);
  p = fmaf(p, u, -4.146173596e-01f);
  p = fmaf(p, u, -1.839970589e+00f);
  p = fmaf(p, u, -2.301575422e+00f);
  p = fmaf(p, u, -3.767000000e-05f);
  return fmaf(u, 1.0f - ptx::exp2_approximate(p), h);
}

}  // namespace convnorm::cuda::recompute
