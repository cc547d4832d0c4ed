// Work for a GPU in tests of launches beside other launches.
#pragma once

#include <cuda_runtime_api.h>

namespace convnorm::test {

// Holds `ctas` multiprocessors whole, each for `microseconds`.
cudaError_t occupy(int ctas, unsigned microseconds, cudaStream_t stream);

// Adds to *different the number of 32-bit words, of `words`, in which the two differ. All three are device memory.
cudaError_t compare_words(const void* one, const void* other, size_t words, unsigned* different, cudaStream_t stream);

}  // namespace convnorm::test
