#include "kernels/cuda/sm90_onchip/launch.hpp"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm90_onchip/launch.cuh"

namespace convnorm::cuda::sm90_onchip {

namespace {

template <class Element, int kParts>
void launch_shape(const Parameters& parameters, cudaStream_t stream) {
  const Config& c = parameters.config;
  if (c.wide) {
    launch_instance<Traits<Element, kParts, 128, true>>(parameters, stream);
  } else if (c.tile_columns == 128) {
    launch_instance<Traits<Element, kParts, 128, false>>(parameters, stream);
  } else {
    launch_instance<Traits<Element, kParts, 64, false>>(parameters, stream);
  }
}

}  // namespace

void launch_onchip(const Arguments& arguments, const Config& config, const SyncSlot& slot, cudaStream_t stream) {
  const bool aligned = reinterpret_cast<uintptr_t>(arguments.y) % 32 == 0;
  const Store store = config.staged ? Store::kStaged : aligned ? Store::kVectors : Store::kElements;
  const Input input = {arguments.x,
                       arguments.c * arguments.l,
                       static_cast<int>(arguments.c),
                       static_cast<int>(arguments.l),
                       static_cast<int>(arguments.stride),
                       static_cast<int>(arguments.pad_left)};
  const SharedPlan plan(config, arguments.dtype == CONVNORM_F32 ? 4 : 2);
  const Parameters parameters = {input, config, plan, slot, store, arguments};
  with_device_element(arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    if constexpr (sizeof(Element) == 4) {
      if (config.parts == 3) return launch_shape<Element, 3>(parameters, stream);
      if (config.parts == 2) return launch_shape<Element, 2>(parameters, stream);
    }
    return launch_shape<Element, 1>(parameters, stream);
  });
}

}  // namespace convnorm::cuda::sm90_onchip
