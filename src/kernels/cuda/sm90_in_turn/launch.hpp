// Host side of the kernel for samples in turn that needs a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/sm90_in_turn/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::sm90_in_turn {

// The instance for a config. Throws Failure.
void launch_in_turn(const Arguments& arguments, const Config& config, const SyncSlot& slot, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_in_turn
