// Host side of the small-L kernel that needs a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/sm90_stream/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::sm90_stream {

// `constant_weights`: the kernel before this one in the stream has not written the packed weight, so that it may be
// requested before that kernel ends. Throws Failure.
void launch_stream(const Arguments& arguments, const Config& config, const SyncSlot& slot, bool constant_weights,
                   cudaStream_t stream);

// w (C_out, C_in, K), device memory -> the packed weight behind its header.
void pack(const Problem& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_stream
