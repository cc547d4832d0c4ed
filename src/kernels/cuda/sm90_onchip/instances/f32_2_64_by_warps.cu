#include "kernels/cuda/sm90_onchip/instance.cuh"

namespace convnorm::cuda::sm90_onchip {

template void launch_instance<Traits<float, 2, 64, false, true>>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::sm90_onchip
