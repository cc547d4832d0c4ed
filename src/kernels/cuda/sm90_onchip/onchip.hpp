// The one-wave kernel as an implementation of the registry.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_sm90_onchip(const PlanRequest& request);

}  // namespace convnorm::cuda
