// The operator written out plainly, in any precision: in double it is the truth, in fp32 it says which error the same
// arithmetic makes without any cleverness. From that follows what a path may err by.
#pragma once

#include <string>
#include <vector>

#include "support/inputs.hpp"

namespace convnorm::test {

// (N, C_y, L_out).
std::vector<double> evaluate_in_double(const Inputs& inputs);

// In which order an output of the convolution is summed. One order may err little by luck; all three hardly do.
enum class Order { channels_outside, taps_outside, backwards };
std::vector<double> evaluate_in_float(const Inputs& inputs, Order order);

struct Expected {
  explicit Expected(const Inputs& inputs);

  std::vector<double> y;  // the truth
  convnorm_dtype dtype;
  double error;           // largest of the fp32 evaluations, as a multiple of max(1, |y|)
  bool well_conditioned;  // the contract's absolute limit holds as well

  // What a path that computes in fp32 may differ by at element i; its final rounding to a 16-bit type included.
  double tolerance(size_t i) const;
  // What is left when only the last rounding is not exact.
  double rounding(size_t i) const;
};

// "" or the first element that is off, with its place and values. Equal infinities and NaN in the same place agree.
enum class Arithmetic { single_precision, double_precision };
std::string compare(const Inputs& inputs, const Expected& expected, const std::vector<double>& y,
                    Arithmetic arithmetic);

}  // namespace convnorm::test
