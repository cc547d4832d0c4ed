// Instances are chosen by element type, parts, columns and width; each is compiled in a file of its own.
#pragma once

#include <bit>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm90_onchip/traits.cuh"

namespace convnorm::cuda::sm90_onchip {

// At a slot of x, in the first fill as x_loader.cuh shares it out, by lanes or by warps; refills arrive as often.
inline int x_arrivals(const Config& c, convnorm_dtype dtype, bool plain_fill, int loader_warps) {
  if (!plain_fill) return 32 * (loader_warps + 4 * c.warpgroups);
  const int units = dtype == CONVNORM_F32 ? 2 * c.chunk_k16 : c.chunk_k16;
  return 4 * units + Traits<float, 1, 128, true, false>::kHaloWarps;
}

inline PlainFill plain_fill_of(const Config& c, const SharedPlan& plan, int pad_left, int element_bytes) {
  // Eight channels, or sixteen of 16 bits.
  const int unit_k8 = element_bytes == 2 ? 2 : 1, k8_bytes = c.rows() * 16, slot_units = 2 * c.chunk_k16 / unit_k8;
  return {plan.x + pad_left * c.samples * 16,
          plan.x_slot_bytes,
          unit_k8 * k8_bytes,
          element_bytes == 2 ? k8_bytes : plan.x_part_bytes,
          std::countr_zero(static_cast<unsigned>(slot_units)),
          slot_units * c.x_slots};
}

inline int loader_warps_of(const Config& c) {
  return c.wide ? Traits<float, 1, 128, true, false>::kLoaderWarps : Traits<float, 1, 128, false, false>::kLoaderWarps;
}

// What a launch receives for one call, whose tiles go to `destination` in elements of `element_bytes`.
inline Parameters parameters_of(const Arguments& arguments, const Config& config, const SyncSlot& slot,
                                const void* destination, int element_bytes, int loader_warps) {
  const SharedPlan plan(config, element_bytes);
  const bool plain_fill = config.plain_fill && reinterpret_cast<uintptr_t>(arguments.x) % 4 == 0;
  const int element_of_x = arguments.dtype == CONVNORM_F32 ? 4 : 2;
  const auto x = reinterpret_cast<uintptr_t>(arguments.x);
  const bool vectors_of_x = x % 16 == 0 && arguments.l * element_of_x % 16 == 0;
  const bool fours_aligned = config.by_fours && arguments.l % 4 == 0 && x % (4 * element_of_x) == 0;
  return {input_of(arguments), plain_fill,
          // With one tap there is too little to multiply for copies that are waited for two at a time.
          (plain_fill && arguments.k > 1) || (config.whole_samples && vectors_of_x), vectors_of_x,
          x_arrivals(config, arguments.dtype, plain_fill, loader_warps),
          plain_fill_of(config, plan, static_cast<int>(arguments.pad_left), element_of_x), fours_aligned, config, plan,
          slot, store_of(destination, config.staged), arguments};
}

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_onchip
