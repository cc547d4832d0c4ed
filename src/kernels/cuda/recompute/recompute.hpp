// The path that forms products twice: for statistics, and again on their way to y (docs/kernels/recompute.md).
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_recompute(const PlanRequest& request);

}  // namespace convnorm::cuda
