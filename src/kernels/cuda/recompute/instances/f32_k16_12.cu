#include "kernels/cuda/recompute/instance.cuh"

namespace convnorm::cuda::recompute {

template void launch_instance<float, 12, Ops::kAny>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::recompute
