#include "kernels/cuda/sm90_onchip/instance.cuh"

namespace convnorm::cuda::sm90_onchip {

template void launch_instance<Traits<__nv_bfloat16, 1, 64, false, true>>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::sm90_onchip
