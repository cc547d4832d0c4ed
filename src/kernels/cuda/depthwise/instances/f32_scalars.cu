#include "kernels/cuda/depthwise/instance.cuh"

namespace convnorm::cuda::depthwise {

template void launch_instance<float, Walk::kScalars>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::depthwise
