// A transposed convolution as a convolution whose channels are the positions between two inputs.
//
//   y[o, q * s + r] = sum over c, d of x[c, q + d] * w[c, o, r + p - s * d]
//
// for stride s and padding p: an ordinary convolution over d with s channels, r = 0 .. s - 1, for each of y's.
#pragma once

#include <array>
#include <cstdint>

#include "bindings/torch/operator.hpp"

namespace convnorm_torch {

// The shape of that convolution's weight (C_out * stride, C_in, taps), for a weight (C_in, C_out, K).
std::array<int64_t, 3> shape_of_phases(const Phases& phases, const Tensor& weight);

// That weight, on the device of `weight`.
Tensor arranged(const Phases& phases, const Tensor& weight);

}  // namespace convnorm_torch
