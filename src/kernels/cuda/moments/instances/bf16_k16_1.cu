#include "kernels/cuda/moments/stream.cuh"

namespace convnorm::cuda::moments {

template void launch_stream_instance<__nv_bfloat16, 1, Ops::kAny>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::moments
