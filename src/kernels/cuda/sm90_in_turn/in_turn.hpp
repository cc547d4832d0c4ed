// Samples in turn as an implementation of the registry.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_sm90_in_turn(const PlanRequest& request);

}  // namespace convnorm::cuda
