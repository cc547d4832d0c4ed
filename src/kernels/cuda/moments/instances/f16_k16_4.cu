#include "kernels/cuda/moments/stream.cuh"

namespace convnorm::cuda::moments {

template void launch_stream_instance<__half, 4, Ops::kAny>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::moments
