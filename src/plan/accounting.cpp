#include "plan/plan.hpp"

namespace convnorm {

double compulsory_bytes(const Problem& problem, const Sizes& sizes) {
  const bool residual = has_post(problem, CONVNORM_ADD);
  const double elements = static_cast<double>(sizes.x_elements) + static_cast<double>(sizes.w_elements) +
                          static_cast<double>(sizes.y_elements) * (residual ? 2 : 1);
  // The parameters' own type is known only when a plan is executed; they are given as fp32 as a rule.
  double parameters = 0;
  if (problem.bias) parameters += static_cast<double>(problem.o);
  if (has_affine(problem)) parameters += 2.0 * static_cast<double>(problem.o);
  if (has_post(problem, CONVNORM_FILM)) parameters += 2.0 * static_cast<double>(problem.n * problem.o);
  return elements * static_cast<double>(element_size(problem.dtype)) + parameters * sizeof(float);
}

}  // namespace convnorm
