#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda {

namespace {

__global__ void header_kernel(PackedHeader* header, uint64_t fingerprint) { header->fingerprint = fingerprint; }

}  // namespace

void write_header(PackedHeader* header, uint64_t fingerprint, cudaStream_t stream) {
  launch("writing the header of a packed weight", header_kernel, {}, stream, header, fingerprint);
}

}  // namespace convnorm::cuda
