// Tensor elements in device memory as floats, and floats rounded once to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "convnorm/convnorm.h"

namespace convnorm::cuda {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class Element>
__device__ Element from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Of a tensor that nothing writes during the launch.
template <class Element>
__device__ inline float load(const void* tensor, int64_t index) {
  return to_float(__ldg(static_cast<const Element*>(tensor) + index));
}

template <class Element>
__device__ inline void store(void* tensor, int64_t index, float value) {
  static_cast<Element*>(tensor)[index] = from_float<Element>(value);
}

// For parameters and residuals, whose type is known at run time only: the branch is the same for a whole grid.
__device__ inline float load(const void* tensor, convnorm_dtype dtype, int64_t index) {
  switch (dtype) {
    case CONVNORM_F16:
      return load<__half>(tensor, index);
    case CONVNORM_BF16:
      return load<__nv_bfloat16>(tensor, index);
    default:
      return load<float>(tensor, index);
  }
}

// Calls body with a value of the element type on the host, to choose an instance of a kernel.
template <class Body>
decltype(auto) with_device_element(convnorm_dtype dtype, Body&& body) {
  switch (dtype) {
    case CONVNORM_F16:
      return body(__half{});
    case CONVNORM_BF16:
      return body(__nv_bfloat16{});
    default:
      return body(float{});
  }
}

}  // namespace convnorm::cuda
