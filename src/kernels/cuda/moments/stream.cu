#include "kernels/cuda/element.cuh"
#include "kernels/cuda/moments/stream_launch.hpp"

namespace convnorm::cuda::moments {

void launch_stream(const Parameters& p, cudaStream_t stream) {
  const Arguments& a = p.arguments;
  const bool gelu = a.post_count == 1 && a.post[0].op == CONVNORM_GELU;
  with_device_element(a.dtype, [&](auto type) {
    using Element = decltype(type);
    switch (p.config.k16) {
      case 1:
        if (gelu) return launch_stream_instance<Element, 1, Ops::kGelu>(p, stream);
        return launch_stream_instance<Element, 1, Ops::kAny>(p, stream);
      case 2:
        return launch_stream_instance<Element, 2, Ops::kAny>(p, stream);
      default:
        return launch_stream_instance<Element, 4, Ops::kAny>(p, stream);
    }
  });
}

}  // namespace convnorm::cuda::moments
