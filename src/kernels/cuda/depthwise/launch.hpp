// Entry of the depthwise kernel for the host.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/depthwise/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::depthwise {

// The packed weight is the weight in fp32. `slot` is null where config.words() is 0.
void launch_depthwise(const Arguments& arguments, const Config& config, const SyncSlot& slot, cudaStream_t stream);

}  // namespace convnorm::cuda::depthwise
