#include "kernels/cuda/sm90_onchip/launch.hpp"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm90_onchip/launch.cuh"

namespace convnorm::cuda::sm90_onchip {

namespace {

template <class Element, int kParts>
void launch_shape(const Parameters& parameters, cudaStream_t stream) {
  const Config& c = parameters.config;
  // Rows of y start on sectors only if y does.
  const bool by_warps = c.by_warps && parameters.store == Store::kVectors;
  if (c.tile_columns == 64) {
    launch_instance<Traits<Element, kParts, 64, false, false>>(parameters, stream);
  } else if (c.wide) {
    by_warps ? launch_instance<Traits<Element, kParts, 128, true, true>>(parameters, stream)
             : launch_instance<Traits<Element, kParts, 128, true, false>>(parameters, stream);
  } else {
    by_warps ? launch_instance<Traits<Element, kParts, 128, false, true>>(parameters, stream)
             : launch_instance<Traits<Element, kParts, 128, false, false>>(parameters, stream);
  }
}

// Of warps at a slot of x, in the first fill as x_loader.cuh shares it out; refills arrive as often.
int x_arrivals(const Config& c, convnorm_dtype dtype, bool plain_fill) {
  const int loader_warps = c.wide ? Traits<float, 1, 128, true, false>::kLoaderWarps
                                  : Traits<float, 1, 128, false, false>::kLoaderWarps;
  if (!plain_fill) return loader_warps + 4 * c.warpgroups;
  const int units = dtype == CONVNORM_F32 ? 2 * c.chunk_k16 : c.chunk_k16;
  return 4 * units + Traits<float, 1, 128, true, false>::kHaloWarps;
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
  const bool plain_fill = config.plain_fill && reinterpret_cast<uintptr_t>(arguments.x) % 4 == 0;
  const bool vectors_of_x = reinterpret_cast<uintptr_t>(arguments.x) % 16 == 0 &&
                            arguments.l * (arguments.dtype == CONVNORM_F32 ? 4 : 2) % 16 == 0;
  const Parameters parameters = {input, plain_fill, vectors_of_x, x_arrivals(config, arguments.dtype, plain_fill), config, plan, slot,
                                 store, arguments};
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
