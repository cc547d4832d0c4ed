// Instances are chosen by element type, parts and taps, and inside by column tiles. `shape` lacks the instance's rings.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm90_stream/traits.cuh"

namespace convnorm::cuda::sm90_stream {

template <class Element, int kParts, int kTaps>
void launch_instance(int tiles8, const Parameters& parameters, LaunchShape shape, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_stream
