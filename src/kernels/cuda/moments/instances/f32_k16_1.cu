#include "kernels/cuda/moments/stream.cuh"

namespace convnorm::cuda::moments {

template void launch_stream_instance<float, 1, Ops::kAny>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::moments
