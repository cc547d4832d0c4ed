#include "kernels/cuda/sm90_stream/instance.cuh"

namespace convnorm::cuda::sm90_stream {

template void launch_instance<float, 3, 3>(int, const Parameters&, LaunchShape, cudaStream_t);

}  // namespace convnorm::cuda::sm90_stream
