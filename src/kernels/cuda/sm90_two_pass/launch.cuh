// Instances are chosen by element type, parts, width and pass; each is compiled in a file of its own.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm90_two_pass/traits.cuh"

namespace convnorm::cuda::sm90_two_pass {

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_two_pass
