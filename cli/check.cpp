#include "cli/check.hpp"

#include <utility>

namespace convnorm::cli {

Expectation::Expectation(const Operands& operands, const CheckOptions& options)
    : operands_(operands), options_(options) {
  if (options.reference_flops > 0) pieces_ = affordable_pieces(operands.problem, options.reference_flops);
  for (const Piece& piece : pieces_) wanted_.push_back(reference_output(operands, piece, options.threads));
}

CheckResult Expectation::check(const Subject& subject) const {
  const convnorm_problem& problem = operands_.problem;
  Computed computed = compute(subject, operands_);
  CheckResult result{.comparison = Comparison(tolerance_of(problem.dtype), options_.allow_nan),
                     .worst = {0, 0, 0},
                     .compared = pieces_.empty() ? kComparedNothing : pieces_text(problem, pieces_),
                     .fault = std::move(computed.fault),
                     .y = {element_type(problem.dtype), output_shape(problem), std::move(computed.y)}};
  int64_t offset = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const double worst_before = result.comparison.worst_ratio();
    result.comparison.add(piece_of_output(problem, result.y, pieces_[i]), wanted_[i], offset);
    if (result.comparison.worst_ratio() > worst_before) {
      result.worst = position_in_output(problem, pieces_[i], result.comparison.worst_index() - offset);
    }
    offset += static_cast<int64_t>(wanted_[i].size());
  }
  return result;
}

}  // namespace convnorm::cli
