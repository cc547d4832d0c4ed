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
// With split_parts, x and w are that many bfloat16 parts, and the products of parts whose places add up to fewer than
// split_parts are formed: one, three or six of them.
std::vector<double> evaluate_in_float(const Inputs& inputs, Order order, int split_parts = 0);

// What a path computes in. The values of the split ones are their numbers of parts.
enum class Arithmetic { single_precision = 0, one_part = 1, two_parts = 2, three_parts = 3, double_precision };

struct Expected {
  explicit Expected(const Inputs& inputs);

  std::vector<double> y;  // the truth
  convnorm_dtype dtype;
  double error;           // largest of the plain fp32 evaluations, as a multiple of max(1, |y|)
  bool well_conditioned;  // the contract's absolute limit holds as well

  // `error` of an arithmetic: of the evaluations with its products. `inputs` are the constructor's.
  double error_in(Arithmetic arithmetic, const Inputs& inputs) const;
  // What a path may differ by at element i, its final rounding to a 16-bit type included. In double precision that
  // rounding is all.
  double tolerance(size_t i, Arithmetic arithmetic, const Inputs& inputs) const;

 private:
  double error_with(int split_parts, const Inputs& inputs) const;

  mutable double split_errors_[4] = {-1, -1, -1, -1};  // by number of parts; negative: not evaluated yet
};

// "" or the first element that is off, with its place and values. Equal infinities and NaN in the same place agree.
std::string compare(const Inputs& inputs, const Expected& expected, const std::vector<double>& y,
                    Arithmetic arithmetic);

}  // namespace convnorm::test
