#include "kernels/cuda/moments/stream.cuh"

namespace convnorm::cuda::moments {

template void launch_stream_instance<__half, 1, Ops::kGelu>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::moments
