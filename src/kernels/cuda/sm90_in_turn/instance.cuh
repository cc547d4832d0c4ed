// Included by the instance files.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm90_in_turn/kernel.cuh"
#include "kernels/cuda/sm90_in_turn/launch.cuh"

namespace convnorm::cuda::sm90_in_turn {

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream) {
  const Config& c = parameters.config;
  LaunchShape shape;
  shape.grid = dim3(c.domain_ctas, c.teams, c.domain_row_tiles);
  shape.block = dim3(T::kThreads);
  shape.shared_bytes = parameters.plan.bytes;
  shape.cooperative = c.exchanges();  // CTAs wait for each other
  launch("sm90_in_turn", in_turn<T>, shape, stream, parameters);
}

}  // namespace convnorm::cuda::sm90_in_turn
