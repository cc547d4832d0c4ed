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
// `parts`: bf16 parts of which a product's operands consist; 0: they are taken as they are. With two, the product of
// the two smaller ones is left out: three products.
std::vector<double> evaluate_in_float(const Inputs& inputs, Order order, int parts = 0);

// How a path forms its products.
enum class Arithmetic { single_precision, parts_of_products, double_precision };
// Of `path`: those on tensor cores take fp32 apart as the problem's precision allows.
Arithmetic arithmetic_of(const Inputs& inputs, const std::string& path);

struct Expected {
  explicit Expected(const Inputs& inputs);

  std::vector<double> y;  // the truth
  convnorm_dtype dtype;
  double error;           // largest of the fp32 evaluations, as a multiple of max(1, |y|)
  bool well_conditioned;  // the contract's absolute limit holds as well

  // What a path may differ by at element i, its final rounding to a 16-bit type included, if evaluations in its
  // arithmetic err by `error_of_it`.
  double tolerance(size_t i, double error_of_it) const;
  // What is left when only the last rounding is not exact.
  double rounding(size_t i) const;
};

// "" or the first element that is off, with its place and values. Equal infinities and NaN in the same place agree.
std::string compare(const Inputs& inputs, const Expected& expected, const std::vector<double>& y,
                    Arithmetic arithmetic);

}  // namespace convnorm::test
