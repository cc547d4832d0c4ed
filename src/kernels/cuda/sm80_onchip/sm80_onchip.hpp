// The one-wave kernel for mma.sync, as the registry asks it.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_sm80_onchip(const PlanRequest& request);

}  // namespace convnorm::cuda
