#include "kernels/cuda/element.cuh"
#include "kernels/cuda/moments/stream_launch.hpp"

namespace convnorm::cuda::moments {

void launch_stream(const Parameters& p, cudaStream_t stream) {
  with_device_element(p.arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    switch (p.config.k16) {
      case 1:
        return launch_stream_instance<Element, 1>(p, stream);
      case 2:
        return launch_stream_instance<Element, 2>(p, stream);
      default:
        return launch_stream_instance<Element, 4>(p, stream);
    }
  });
}

}  // namespace convnorm::cuda::moments
