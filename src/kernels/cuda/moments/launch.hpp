// Entries of the moments kernels for the host.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/moments/config.hpp"
#include "kernels/cuda/recompute/launch.hpp"

namespace convnorm::cuda::moments {

// What both launches receive.
struct Parameters {
  Config config;
  PackedPlan packed;
  WorkspacePlan places;
  int measured_width;  // inputs of a channel that a tile of the first launch holds
  unsigned char* workspace;
  Arguments arguments;
};

// What the last launch receives, where it is not recompute's.
struct ResultParameters {
  recompute::Config stream;
  recompute::PackedPlan packed;
  ResultConfig result;
  ResultPlan shared;
  Arguments arguments;
  recompute::Given given;
};

// w (C_out, C_in/conv_groups, K) -> packed weight.
void pack(const Arguments& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream);

// Moments of the columns of every slice.
void launch_measure(const Parameters& parameters, cudaStream_t stream);
// Slices merged, and what the norm does to every row.
void launch_channels(const Parameters& parameters, cudaStream_t stream);
// x to y.
void launch_result(const ResultParameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::moments
