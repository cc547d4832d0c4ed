#include "kernels/cuda/depthwise/launch.cuh"
#include "kernels/cuda/element.cuh"

namespace convnorm::cuda::depthwise {

void launch_depthwise(const Arguments& arguments, const Config& config, const SyncSlot& slot, cudaStream_t stream) {
  const int element_bytes = arguments.dtype == CONVNORM_F32 ? 4 : 2;
  const Parameters p = {config, shared_plan(config, arguments.k, element_bytes), slot, arguments};
  with_device_element(arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    switch (config.walk) {
      case Walk::kSteps:
        return launch_instance<Element, Walk::kSteps>(p, stream);
      case Walk::kVectors:
        return launch_instance<Element, Walk::kVectors>(p, stream);
      case Walk::kWindow:
        return launch_instance<Element, Walk::kWindow>(p, stream);
      default:
        return launch_instance<Element, Walk::kScalars>(p, stream);
    }
  });
}

}  // namespace convnorm::cuda::depthwise
