#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/result.cuh"

namespace convnorm::cuda::moments {

void launch_result(const ResultParameters& p, cudaStream_t stream) {
  const int64_t ctas = p.arguments.n * p.arguments.conv_groups * p.result.sets * p.result.slices;
  with_device_element(p.arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    launch("launching moments' result", result_kernel<Element, result_k16(sizeof(Element))>,
           {.grid = dim3(static_cast<unsigned>(ctas)),
            .block = dim3(kResultThreads),
            .shared_bytes = static_cast<size_t>(p.shared.bytes),
            .programmatic = p.given.dependent},
           stream, p);
  });
}

}  // namespace convnorm::cuda::moments
