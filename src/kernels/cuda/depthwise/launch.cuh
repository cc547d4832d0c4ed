// What launch.cu calls and the files of instances/ define.
#pragma once

#include "kernels/cuda/depthwise/launch.hpp"

namespace convnorm::cuda::depthwise {

struct Parameters {
  Config config;
  SharedPlan plan;
  SyncSlot slot;
  Arguments arguments;
};

template <class Element, Walk kWalk>
void launch_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::depthwise
