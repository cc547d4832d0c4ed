// A problem together with the values of all its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "descriptor/problem.hpp"

namespace convnorm::test {

enum class Fill {
  s,           // small fractions, exact in every element type
  integers,    // small integers: every sum of the convolution is exact in fp32, in any order
  exact_sum,   // pairs 4 + d, 4 - d along L: mean and variance of a row are exact, in any order
  uniform,     // independent in [-1, 1]
  correlated,  // a slow random walk on an offset of twenty times its step, as raw signals are
  outliers     // normal values, one in fifty a hundred times larger
};
inline constexpr Fill kFills[] = {Fill::s,       Fill::integers,   Fill::exact_sum,
                                  Fill::uniform, Fill::correlated, Fill::outliers};
const char* fill_name(Fill fill);

// Values are exact in their tensor's element type. Activations are (N, C, L) whatever the problem's layout; the runner
// turns them.
struct Inputs {
  explicit Inputs(const Problem& p, convnorm_dtype parameters = CONVNORM_F32)
      : problem(p), sizes(p), param_dtype(parameters) {}

  Problem problem;
  Sizes sizes;
  convnorm_dtype param_dtype;
  std::vector<float> x, w, bias, gamma, beta, pre_slope, post_slope, film_scale, film_shift, residual;
  std::vector<int64_t> lengths;
};

// `seed` also decides whether a slope is one value or one per channel. For an fp32 problem `parameters` is fp32.
Inputs make_inputs(const Problem& problem, Fill fill, uint64_t seed = 1, convnorm_dtype parameters = CONVNORM_F32);
inline Inputs make_inputs(const std::string& line, Fill fill = Fill::s, uint64_t seed = 1) {
  return make_inputs(parse_problem(line), fill, seed);
}

// The channels that `op` sees among the post ops: a glu before it has halved them.
int64_t channels_before(const Problem& problem, convnorm_op op);

}  // namespace convnorm::test
