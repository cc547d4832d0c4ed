#include "kernels/cuda/recompute/instance.cuh"

namespace convnorm::cuda::recompute {

template void launch_instance<__nv_bfloat16, 1, Ops::kGelu>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::recompute
