#include "kernels/cuda/sm90_in_turn/instance.cuh"

namespace convnorm::cuda::sm90_in_turn {

template void launch_instance<Traits<__half, 1>>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::sm90_in_turn
