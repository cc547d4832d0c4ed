// any_arch: plain CUDA for every GPU and every option. The oracle on the device, and the floor that no problem falls
// through.
#pragma once

#include "plan/plan.hpp"

namespace convnorm::cuda {

Answer consider_any_arch(const PlanRequest& request);

}  // namespace convnorm::cuda
