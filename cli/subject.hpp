// What check and bench look at: an operator as a pair of callables, so that tests can put a wrong one in its place.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/library.hpp"
#include "cli/tensors.hpp"
#include "convnorm/convnorm.h"

namespace convnorm::cli {

// What an operator made of its inputs, in memory where a stray write or an unwritten element shows.
struct Computed {
  std::vector<std::byte> y;
  std::string fault;  // inputs changed, guards overwritten; empty if nothing
};

struct Subject {
  std::string path;
  std::string target;
  size_t packed_size;
  size_t workspace_size;
  std::function<void(const void* weight, void* packed)> pack;
  std::function<void(const convnorm_tensors& tensors, void* workspace)> execute;
  // Null for an operator on the CPU. On a GPU all memory is the device's, and the two above do not serve.
  std::function<Computed(const Operands& operands)> compute_on_device = nullptr;
};

Computed compute(const Subject& subject, const Operands& operands);

// What is watched over in every call: "" or the first fault found.
std::string guard_fault(bool y_intact, bool workspace_intact, bool packed_intact);

Subject planned_subject(std::shared_ptr<const Plan> plan);

// The same result in two steps, as callers do without the fused operator: the convolution stores z in the dtype of the
// line, then a pass over memory normalises it and applies the operations.
Subject unfused_subject(const convnorm_problem& problem, const convnorm_plan_options& options);

}  // namespace convnorm::cli
