// Instances are chosen by element type and parts; each is compiled in a file of its own.
#pragma once

#include "kernels/cuda/sm90_in_turn/traits.cuh"

namespace convnorm::cuda::sm90_in_turn {

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_in_turn
