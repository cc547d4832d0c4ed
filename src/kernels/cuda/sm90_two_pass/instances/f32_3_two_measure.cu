#include "kernels/cuda/sm90_two_pass/instance.cuh"

namespace convnorm::cuda::sm90_two_pass {

template void launch_instance<Traits<float, 3, Width::kTwo, Pass::kMeasure>>(const Parameters&, cudaStream_t);

}  // namespace convnorm::cuda::sm90_two_pass
