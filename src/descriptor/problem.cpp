#include "descriptor/problem.hpp"

#include <algorithm>

#include "descriptor/names.hpp"
#include "descriptor/text.hpp"
#include "epilogue/ops.hpp"

namespace convnorm {

Problem default_problem() {
  Problem p{};
  p.stride = 1;
  p.dilation = 1;
  p.conv_groups = 1;
  p.eps = 1e-5;
  p.affine = 1;
  p.precision = CONVNORM_HIGH;
  return p;
}

Problem canonical(Problem problem) {
  if (!has_norm(problem)) {
    const Problem defaults = default_problem();
    problem.affine = defaults.affine;
    problem.eps = defaults.eps;
  }
  problem.pre.param = 0;
  for (int i = 0; i < CONVNORM_MAX_POST; ++i) {
    convnorm_stage& stage = problem.post[i];
    if (i >= problem.post_count) {
      stage = {CONVNORM_NONE, 0};
    } else if (!op_info(stage.op).takes_param()) {
      stage.param = 0;
    }
  }
  return problem;
}

bool equal(const Problem& a, const Problem& b) { return print_problem(a) == print_problem(b); }

uint64_t hash(const Problem& problem) { return fnv1a(print_problem(problem)); }

int64_t output_length(const Problem& p, int64_t length) {
  const int64_t room = length + p.pad_left + p.pad_right - (p.dilation * (p.k - 1) + 1);
  return room < 0 ? 0 : room / p.stride + 1;
}

bool has_post(const Problem& p, convnorm_op op) {
  return std::any_of(p.post, p.post + p.post_count, [op](const convnorm_stage& stage) { return stage.op == op; });
}

int64_t element_size(convnorm_dtype dtype) { return dtype == CONVNORM_F32 ? 4 : 2; }

const char* dtype_name(convnorm_dtype dtype) { return kDtypeNames[dtype].data(); }

Sizes::Sizes(const Problem& p)
    : l_out(output_length(p, p.l)),
      c_y(has_post(p, CONVNORM_GLU) ? p.o / 2 : p.o),
      c_per_conv_group(p.c / p.conv_groups),
      o_per_conv_group(p.o / p.conv_groups),
      o_per_norm_group(has_norm(p) ? p.o / p.groups : 0),
      k_span(p.dilation * (p.k - 1) + 1),
      x_elements(p.n * p.c * p.l),
      w_elements(p.o * c_per_conv_group * p.k),
      y_elements(p.n * c_y * l_out),
      z_elements(p.n * p.o * l_out),
      flops(2.0 * static_cast<double>(z_elements) * static_cast<double>(c_per_conv_group) * static_cast<double>(p.k)) {}

}  // namespace convnorm
