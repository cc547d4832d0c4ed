// moments: many channels of few inputs, as in raw audio. Statistics follow from second moments of the inputs.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_moments(const PlanRequest& request);

}  // namespace convnorm::cuda
