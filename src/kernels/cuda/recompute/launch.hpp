// Entries of the recomputing kernels for the host.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/recompute/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::recompute {

struct Parameters {
  Config config;
  PackedPlan packed;
  SharedPlan shared;
  SyncSlot slot;
  Arguments arguments;
};

// w (C_out, C_in/conv_groups, K) -> packed weight.
void pack(const Arguments& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream);

void launch_recompute(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::recompute
