// Included by the instance files.
#pragma once

#include "kernels/cuda/sm90_onchip/kernel.cuh"
#include "kernels/cuda/sm90_onchip/launch.cuh"

namespace convnorm::cuda::sm90_onchip {

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream) {
  const Config& c = parameters.config;
  LaunchShape shape;
  shape.grid = dim3(c.domain_column_tiles, c.teams, c.domain_row_tiles);
  shape.block = dim3(128 * c.computing_warpgroups() + 32 * T::kProducerWarps);
  shape.shared_bytes = parameters.plan.bytes;
  shape.cooperative = c.exchanges();  // CTAs wait for each other
  shape.programmatic = T::kArranged && parameters.arranged;
  launch("sm90_onchip", onchip<T>, shape, stream, parameters);
}

}  // namespace convnorm::cuda::sm90_onchip
