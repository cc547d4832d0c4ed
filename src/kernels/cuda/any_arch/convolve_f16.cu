#include "kernels/cuda/any_arch/convolve.cuh"

namespace convnorm::cuda::any_arch {

void convolve_f16(const Arguments& arguments, const Wave& wave, TileKind tile, cudaStream_t stream) {
  convolve_elements<__half>(arguments, wave, tile, stream);
}

}  // namespace convnorm::cuda::any_arch
