// Moments of a group -> what the norm does to it.
#pragma once

#include <cfloat>

#include "kernels/cuda/any_arch/traits.hpp"

namespace convnorm::cuda::any_arch {

__device__ inline Norm norm_from(double mean, double variance, double eps) {
  // A tiny eps and no spread make rstd larger than fp32 holds; infinity times a deviation of 0 would be NaN.
  double rstd = 1 / sqrt(variance + eps);
  if (rstd > FLT_MAX) rstd = FLT_MAX;
  Norm norm;
  norm.mean_high = static_cast<float>(mean);
  norm.mean_low = static_cast<float>(mean - static_cast<double>(norm.mean_high));
  norm.rstd_high = static_cast<float>(rstd);
  norm.rstd_low = static_cast<float>(rstd - static_cast<double>(norm.rstd_high));
  return norm;
}

}  // namespace convnorm::cuda::any_arch
