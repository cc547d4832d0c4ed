#include "kernels/cuda/sm90_two_pass/launch.hpp"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm90_onchip/launch.cuh"
#include "kernels/cuda/sm90_two_pass/launch.cuh"

namespace convnorm::cuda::sm90_two_pass {

namespace {

template <Pass kPass, class Element, int kParts>
void launch_shape(const Parameters& parameters, Width width, cudaStream_t stream) {
  width == Width::kPair ? launch_instance<Traits<Element, kParts, Width::kPair, kPass>>(parameters, stream)
                        : launch_instance<Traits<Element, kParts, Width::kTwo, kPass>>(parameters, stream);
}

template <Pass kPass>
void launch_pass(const Parameters& parameters, Width width, cudaStream_t stream) {
  with_device_element(parameters.arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    if constexpr (sizeof(Element) == 4 && kPass == Pass::kMeasure) {
      if (parameters.config.parts == 3) return launch_shape<kPass, Element, 3>(parameters, width, stream);
      if (parameters.config.parts == 2) return launch_shape<kPass, Element, 2>(parameters, width, stream);
    }
    // The planner lets 16-bit types alone convolve again.
    if constexpr (sizeof(Element) == 2 || kPass == Pass::kMeasure) {
      launch_shape<kPass, Element, 1>(parameters, width, stream);
    }
  });
}

sm90_onchip::Parameters tile_parameters(const Arguments& arguments, const sm90_onchip::Config& tiles, Width width,
                                        const void* destination, int element_bytes) {
  const int loader_warps = width == Width::kPair ? Traits<float, 1, Width::kPair, Pass::kMeasure>::kLoaderWarps
                                                 : sm90_onchip::loader_warps_of(tiles);
  return sm90_onchip::parameters_of(arguments, tiles, {}, destination, element_bytes, loader_warps);
}

}  // namespace

void launch_measure(const Arguments& arguments, const sm90_onchip::Config& tiles, Width width, const ZRows& z,
                    const GroupPieces& pieces, cudaStream_t stream) {
  const Parameters parameters = {tile_parameters(arguments, tiles, width, z.z, sizeof(float)), z.z, z.pitch, pieces,
                                 nullptr};
  launch_pass<Pass::kMeasure>(parameters, width, stream);
}

void launch_finish(const Arguments& arguments, const sm90_onchip::Config& tiles, Width width,
                   const any_arch::Norm* norms, cudaStream_t stream) {
  const int element = arguments.dtype == CONVNORM_F32 ? 4 : 2;
  const Parameters parameters = {tile_parameters(arguments, tiles, width, arguments.y, element), nullptr, 0, {}, norms};
  launch_pass<Pass::kFinish>(parameters, width, stream);
}

}  // namespace convnorm::cuda::sm90_two_pass
