#include "kernels/cuda/sm90_two_pass/instance.cuh"

namespace convnorm::cuda::sm90_two_pass {

template void launch_instance<Traits<__half, 1, Width::kTwo, Pass::kFinish>>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::sm90_two_pass
