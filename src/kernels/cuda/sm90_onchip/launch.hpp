// Host side of the one-wave kernel that needs a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/sm90_onchip/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::sm90_onchip {

// The instance for a config, and what arranges x for it in the workspace where the config says so. Throws Failure.
void launch_onchip(const Arguments& arguments, const Config& config, const SyncSlot& slot, void* workspace,
                   cudaStream_t stream);

// w (C_out, C_in, K), device memory -> the packed weight behind its header.
void pack(const Problem& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_onchip
