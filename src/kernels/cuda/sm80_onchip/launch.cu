#include "kernels/cuda/sm80_onchip/launch.hpp"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm80_onchip/launch.cuh"

namespace convnorm::cuda::sm80_onchip {

namespace {

template <class Element, int kParts>
void launch_shape(const Parameters& parameters, cudaStream_t stream) {
  const Config& c = parameters.config;
  constexpr bool kF32 = sizeof(Element) == 4;
  if constexpr (has_columns(kF32, kParts, 64)) {
    if (c.tile_columns == 64) return launch_instance<Traits<Element, kParts, 64, false>>(parameters, stream);
  }
  if constexpr (has_warps(kF32, kParts)) {
    // Rows of y start on sectors only if y does.
    if (c.by_warps && parameters.store == Store::kVectors) {
      return launch_instance<Traits<Element, kParts, 128, true>>(parameters, stream);
    }
  }
  launch_instance<Traits<Element, kParts, 128, false>>(parameters, stream);
}

}  // namespace

void launch_onchip(const Arguments& arguments, const Config& config, const SyncSlot& slot, cudaStream_t stream) {
  const SharedPlan plan(config, arguments.dtype == CONVNORM_F32 ? 4 : 2);
  const Parameters parameters = {
      input_of(arguments),
      config,
      plan,
      slot,
      arguments.layout == CONVNORM_NLC ? Store::kElements : store_of(arguments.y, config.staged),
      arguments};
  with_device_element(arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    if constexpr (sizeof(Element) == 4) {
      if (config.parts == 3) return launch_shape<Element, 3>(parameters, stream);
      if (config.parts == 2) return launch_shape<Element, 2>(parameters, stream);
    }
    return launch_shape<Element, 1>(parameters, stream);
  });
}

}  // namespace convnorm::cuda::sm80_onchip
