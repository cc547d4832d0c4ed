// depthwise: every output channel reads one input channel, which stays in shared memory between statistics and norm.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_depthwise(const PlanRequest& request);

}  // namespace convnorm::cuda
