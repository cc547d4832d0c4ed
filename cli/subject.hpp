// What check and bench look at: an operator as a pair of callables, so that tests can put a wrong one in its place.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/library.hpp"
#include "convnorm/convnorm.h"

namespace convnorm::cli {

struct Subject {
  std::string path;
  std::string target;
  size_t packed_size;
  size_t workspace_size;
  std::function<void(const void* weight, void* packed)> pack;
  std::function<void(const convnorm_tensors& tensors, void* workspace)> execute;
};

Subject planned_subject(std::shared_ptr<const Plan> plan);

// The same result in two steps, as callers do without the fused operator: the convolution stores z in the dtype of the
// line, then a pass over memory normalises it and applies the operations.
Subject unfused_subject(const convnorm_problem& problem, const convnorm_plan_options& options);

}  // namespace convnorm::cli
