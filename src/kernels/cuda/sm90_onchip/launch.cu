#include "kernels/cuda/sm90_onchip/launch.hpp"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm90_onchip/launch.cuh"

namespace convnorm::cuda::sm90_onchip {

namespace {

template <class Element, int kParts>
void launch_shape(const Parameters& parameters, cudaStream_t stream) {
  const Config& c = parameters.config;
  const bool by_warps = c.by_warps && parameters.store != Store::kElements;
  constexpr bool kF32 = sizeof(Element) == 4;
  if constexpr (has_columns(kF32, kParts, 64)) {
    if constexpr (least_by_warps(kF32, kParts) == 64) {
      if (c.tile_columns == 64 && by_warps) {
        return launch_instance<Traits<Element, kParts, 64, false, true>>(parameters, stream);
      }
    }
    if (c.tile_columns == 64) return launch_instance<Traits<Element, kParts, 64, false, false>>(parameters, stream);
  }
  if constexpr (has_columns(kF32, kParts, 136)) {
    if (c.tile_columns == 136) return launch_instance<Traits<Element, kParts, 136, true, true>>(parameters, stream);
  }
  if (c.wide) {
    by_warps ? launch_instance<Traits<Element, kParts, 128, true, true>>(parameters, stream)
             : launch_instance<Traits<Element, kParts, 128, true, false>>(parameters, stream);
  } else {
    by_warps ? launch_instance<Traits<Element, kParts, 128, false, true>>(parameters, stream)
             : launch_instance<Traits<Element, kParts, 128, false, false>>(parameters, stream);
  }
}

}  // namespace

void launch_onchip(const Arguments& arguments, const Config& config, const SyncSlot& slot, void* workspace,
                   cudaStream_t stream) {
  const Parameters parameters =
      parameters_of(arguments, config, slot, arguments.y, arguments.dtype == CONVNORM_F32 ? 4 : 2,
                    loader_warps_of(config), workspace);
  if (config.arranged) launch_arrange(parameters, stream);
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
