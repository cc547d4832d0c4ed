// Entry of the registry.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_sm90_two_pass(const PlanRequest& request);

}  // namespace convnorm::cuda
