#include "kernels/cuda/depthwise/instance.cuh"

namespace convnorm::cuda::depthwise {

template void launch_instance<__nv_bfloat16, Walk::kWindow>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::depthwise
