// Host side of the one-wave kernel for mma.sync that needs a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/sm80_onchip/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::sm80_onchip {

// The instance for a config. Throws Failure.
void launch_onchip(const Arguments& arguments, const Config& config, const SyncSlot& slot, cudaStream_t stream);

// w (C_out, C_in, K), device memory -> the packed weight behind its header.
void pack(const Problem& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream);

}  // namespace convnorm::cuda::sm80_onchip
