#include "kernels/cuda/any_arch/convolve.cuh"

namespace convnorm::cuda::any_arch {

void convolve_f32(const Arguments& arguments, const Wave& wave, TileKind tile, cudaStream_t stream) {
  convolve_elements<float>(arguments, wave, tile, stream);
}

}  // namespace convnorm::cuda::any_arch
