#include "kernels/cuda/any_arch/convolve.cuh"

namespace convnorm::cuda::any_arch {

void convolve_bf16(const Arguments& arguments, const Wave& wave, TileKind tile, cudaStream_t stream) {
  convolve_elements<__nv_bfloat16>(arguments, wave, tile, stream);
}

}  // namespace convnorm::cuda::any_arch
