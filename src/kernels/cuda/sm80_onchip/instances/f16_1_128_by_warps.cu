#include "kernels/cuda/sm80_onchip/instance.cuh"

namespace convnorm::cuda::sm80_onchip {

template void launch_instance<Traits<__half, 1, 128, true>>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::sm80_onchip
