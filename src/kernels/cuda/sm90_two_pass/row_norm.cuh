// What the norm does to a row of z.
#pragma once

#include <cfloat>

#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/collective/ops.cuh"

namespace convnorm::cuda::sm90_two_pass {

// Then z is kept without the bias, which only moves the means: added to every value, a large one would cost digits.
__device__ __forceinline__ bool bias_moves_means(const Arguments& a) {
  return a.bias != nullptr && a.pre == CONVNORM_NONE;
}

struct alignas(16) RowNorm {
  float shift_high, shift_low;  // the mean, less the bias that z lacks
  float scale;                  // rstd * gamma
  float beta;

  __device__ __forceinline__ float operator()(float z) const { return fmaf(z - shift_high - shift_low, scale, beta); }
};

template <class Element>
__device__ __forceinline__ RowNorm row_norm(const Arguments& a, const any_arch::Norm* norms, int64_t n, int channel) {
  const int group = static_cast<int>(static_cast<uint32_t>(channel) / static_cast<uint32_t>(a.o_per_norm_group));
  const float4 norm = __ldg(reinterpret_cast<const float4*>(norms) + n * a.groups + group);
  const float bias = bias_moves_means(a) ? load_parameter<Element>(a, a.bias, channel) : 0.0f;
  const double shift = static_cast<double>(norm.x) + norm.y - bias;
  RowNorm row;
  row.shift_high = static_cast<float>(shift);
  row.shift_low = static_cast<float>(shift - row.shift_high);
  row.scale = norm.z, row.beta = 0.0f;
  if (a.gamma == nullptr) return row;
  const float gamma = load_parameter<Element>(a, a.gamma, channel);
  // An rstd beyond fp32 was held inside it, so that a deviation of 0 stays 0; so is the product.
  const float scale = fmaf(norm.z, gamma, norm.w * gamma);
  row.scale = scale > FLT_MAX ? FLT_MAX : scale < -FLT_MAX ? -FLT_MAX : scale;
  row.beta = load_parameter<Element>(a, a.beta, channel);
  return row;
}

}  // namespace convnorm::cuda::sm90_two_pass
