#include "kernels/cuda/depthwise/instance.cuh"

namespace convnorm::cuda::depthwise {

template void launch_instance<__half, Walk::kVectors>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::depthwise
