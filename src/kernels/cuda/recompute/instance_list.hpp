// What launch.cu calls and the files of instances/ define.
#pragma once

#include "kernels/cuda/recompute/launch.hpp"

namespace convnorm::cuda::recompute {

// What follows the norm. Finding out takes a fifth of the inner loop; raw audio mostly wants the one.
enum class Ops { kAny, kGelu };

template <class Element, int kK16, Ops kOps>
void launch_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::recompute
