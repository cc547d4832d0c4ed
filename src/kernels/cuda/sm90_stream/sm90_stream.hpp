// The small-L kernel as an implementation of the registry.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_sm90_stream(const PlanRequest& request);

}  // namespace convnorm::cuda
