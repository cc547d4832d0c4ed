// What stream.cu calls and the files of instances/ define.
#pragma once

#include "kernels/cuda/moments/launch.hpp"

namespace convnorm::cuda::moments {

template <class Element, int kK16>
void launch_stream_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::moments
