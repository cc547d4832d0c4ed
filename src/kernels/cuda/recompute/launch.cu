#include "kernels/cuda/element.cuh"
#include "kernels/cuda/recompute/instance_list.hpp"

namespace convnorm::cuda::recompute {

void launch_recompute(const Parameters& p, cudaStream_t stream) {
  with_device_element(p.arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    if constexpr (sizeof(Element) == 4) {
      switch (p.config.k16) {
        case 2:
          return launch_instance<Element, 2, Ops::kGelu>(p, stream);
        case 3:
          return launch_instance<Element, 3, Ops::kAny>(p, stream);
        case 6:
          return launch_instance<Element, 6, Ops::kAny>(p, stream);
        default:
          return launch_instance<Element, 12, Ops::kAny>(p, stream);
      }
    } else {
      switch (p.config.k16) {
        case 1:
          return launch_instance<Element, 1, Ops::kGelu>(p, stream);
        case 2:
          return launch_instance<Element, 2, Ops::kAny>(p, stream);
        default:
          return launch_instance<Element, 4, Ops::kAny>(p, stream);
      }
    }
  });
}

}  // namespace convnorm::cuda::recompute
