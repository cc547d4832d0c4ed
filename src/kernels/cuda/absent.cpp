#include "descriptor/text.hpp"
#include "kernels/cuda/backend.hpp"
#include "plan/plan.hpp"

namespace convnorm::cuda {

std::span<const Implementation> implementations() { return {}; }

Presence presence() { return {false, false, "not in this build: " CONVNORM_CUDA_ABSENCE, "", "", ""}; }

DeviceLimits current_device() {
  fail(CONVNORM_NO_DEVICE, "this build has no CUDA backend ({}); build with nvcc, or {}", CONVNORM_CUDA_ABSENCE,
       kUseTheCpu);
}

}  // namespace convnorm::cuda
