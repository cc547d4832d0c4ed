// Included by the instance files.
#pragma once

#include "kernels/cuda/sm80_onchip/kernel.cuh"
#include "kernels/cuda/sm80_onchip/launch.cuh"

namespace convnorm::cuda::sm80_onchip {

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream) {
  const Config& c = parameters.config;
  LaunchShape shape;
  shape.grid = dim3(c.domain_column_tiles, c.teams, c.domain_row_tiles);
  shape.block = dim3(kThreads);
  shape.shared_bytes = parameters.plan.bytes;
  shape.cooperative = c.exchanges();  // CTAs wait for each other
  launch("sm80_onchip", onchip<T>, shape, stream, parameters);
}

}  // namespace convnorm::cuda::sm80_onchip
