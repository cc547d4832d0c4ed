// Included by the instance files.
#pragma once

#include "kernels/cuda/sm90_onchip/kernel.cuh"
#include "kernels/cuda/sm90_two_pass/epilogue.cuh"
#include "kernels/cuda/sm90_two_pass/launch.cuh"

namespace convnorm::cuda::sm90_two_pass {

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream) {
  const sm90_onchip::Config& c = parameters.config;
  LaunchShape shape;
  shape.grid = dim3(1, c.teams);
  shape.block = dim3(128 * c.warpgroups + 32 * T::kProducerWarps);
  shape.shared_bytes = parameters.plan.bytes;
  launch("sm90_two_pass", sm90_onchip::onchip<T>, shape, stream, parameters);
}

}  // namespace convnorm::cuda::sm90_two_pass
