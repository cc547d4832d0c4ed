// Instances are chosen by element type, parts, columns and epilogue; each is compiled in a file of its own.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm80_onchip/traits.cuh"

namespace convnorm::cuda::sm80_onchip {

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::sm80_onchip
