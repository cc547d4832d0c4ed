#include "cli/check.hpp"

#include <chrono>

#include "cli/buffer.hpp"

namespace convnorm::cli {

std::string guard_fault(bool y_intact, bool workspace_intact, bool packed_intact) {
  if (!y_intact) return "wrote outside of y";
  if (!workspace_intact) return "wrote outside of its workspace";
  if (!packed_intact) return "wrote outside of its packed weight";
  return "";
}

Expectation::Expectation(const Operands& operands, const CheckOptions& options)
    : operands_(operands), options_(options) {
  if (options.reference_flops > 0) pieces_ = affordable_pieces(operands.problem, options.reference_flops);
  for (const Piece& piece : pieces_) wanted_.push_back(reference_output(operands, piece, options.threads));
}

CheckResult Expectation::check(const Subject& subject) const {
  const convnorm_problem& problem = operands_.problem;
  // The subject sees clones: should it change its inputs, neither the reference nor this comparison is fooled.
  const Operands inputs = operands_;
  const std::vector<int64_t> shape = output_shape(problem);
  const ElementType type = element_type(problem.dtype);
  GuardedBuffer packed(subject.packed_size), workspace(subject.workspace_size);
  GuardedBuffer y(static_cast<size_t>(byte_count(type, shape)));

  subject.pack(inputs.tensors.at("weight").data.data(), packed.data());
  convnorm_tensors tensors = inputs.view();
  tensors.packed_weight = packed.data();
  tensors.y = y.data();
  subject.execute(tensors, workspace.data());

  CheckResult result{.comparison = Comparison(tolerance_of(problem.dtype), options_.allow_nan),
                     .worst = {0, 0, 0},
                     .compared = pieces_.empty() ? kComparedNothing : pieces_text(problem, pieces_),
                     .fault = guard_fault(y.guards_intact(), workspace.guards_intact(), packed.guards_intact()),
                     .y = {type, shape, {y.bytes().begin(), y.bytes().end()}}};
  for (const auto& [name, tensor] : operands_.tensors) {
    if (tensor.data != inputs.tensors.at(name).data) result.fault = "changed its input " + name;
  }
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
