// Entries of the recomputing kernels for the host.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/recompute/config.hpp"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda::recompute {

// Statistics that launches before this one took: `moments`. Of every sample and conv group.
struct Given {
  const Row* rows;      // [rows of the packed weight]; null: the launch measures by itself
  const float* inputs;  // [1 + channels]: the power of two and the centres by which x is brought near 1
  bool dependent;       // the launch begins before its predecessor ends
};

struct Parameters {
  Config config;
  PackedPlan packed;
  SharedPlan shared;
  SyncSlot slot;
  Arguments arguments;
  Given given;
};

// w (C_out, C_in/conv_groups, K) -> packed weight.
void pack(const Arguments& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream);

void launch_recompute(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::recompute
