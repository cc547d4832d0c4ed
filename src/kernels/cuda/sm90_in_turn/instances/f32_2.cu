#include "kernels/cuda/sm90_in_turn/instance.cuh"

namespace convnorm::cuda::sm90_in_turn {

template void launch_instance<Traits<float, 2>>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::sm90_in_turn
