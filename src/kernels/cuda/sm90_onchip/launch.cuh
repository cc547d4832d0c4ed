// Instances are chosen by element type, parts, columns and width; each is compiled in a file of its own.
#pragma once

#include <bit>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm90_onchip/traits.cuh"

namespace convnorm::cuda::sm90_onchip {

// At a slot of x, in the first fill as x_loader.cuh shares it out, by lanes or by warps; refills arrive as often.
inline int x_arrivals(const Config& c, convnorm_dtype dtype, bool plain_fill, int loader_warps) {
  if (!plain_fill)
    return 32 * (loader_warps + 4 * c.computing_warpgroups()) + (c.arranged ? 1 : 0);  // and the one that feeds x
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
          c.arranged ? 0 : slot_units * c.x_slots};
}

inline RawFill raw_fill_of(const Config& c, int x_part_bytes, int stride, int element_bytes) {
  const int group_k8 = element_bytes == 2 ? 2 : 1, k8_bytes = c.rows() * 16, phase_bytes = c.phase_rows * 16;
  const int items = 2 * c.chunk_k16 / group_k8 * static_cast<int>(c.fours.value);
  return {items,
          (items + 31) / 32,
          std::countr_zero(static_cast<unsigned>(stride)),
          group_k8 * k8_bytes,
          stride == 1 ? 16 : phase_bytes,
          stride == 1   ? 32
          : stride == 2 ? 16
                        : 2 * phase_bytes,
          element_bytes == 2 ? k8_bytes : x_part_bytes,
          stride == 1   ? 3
          : stride == 2 ? 2
                        : 0};
}

inline int loader_warps_of(const Config& c) {
  return c.wide ? Traits<float, 1, 128, true, false>::kLoaderWarps : Traits<float, 1, 128, false, false>::kLoaderWarps;
}

// What a launch receives for one call, whose tiles go to `destination` in elements of `element_bytes`.
inline Parameters parameters_of(const Arguments& arguments, const Config& config, const SyncSlot& slot,
                                const void* destination, int element_bytes, int loader_warps,
                                void* arranged_x = nullptr) {
  const SharedPlan plan(config, element_bytes);
  const bool plain_fill = config.plain_fill && !config.arranged && reinterpret_cast<uintptr_t>(arguments.x) % 4 == 0;
  const int element_of_x = arguments.dtype == CONVNORM_F32 ? 4 : 2;
  const auto x = reinterpret_cast<uintptr_t>(arguments.x);
  const bool vectors_of_x = x % 16 == 0 && arguments.l * element_of_x % 16 == 0;
  const bool fours_aligned = config.by_fours && arguments.l % 4 == 0 && x % (4 * element_of_x) == 0;
  const RawFill raw = raw_fill_of(config, plan.x_part_bytes, static_cast<int>(arguments.stride), element_of_x);
  // A warp that has no unit of a slot for two rounds would not see whether it is empty: its barrier could be two phases
  // behind.
  const bool every_round = raw.units * config.x_slots >= loader_warps;
  const bool once = config.x_slots == config.chunks && config.iterations == 1;
  const bool raw_fill = config.raw_rows && x % 4 == 0 && (every_round || once);
  Input input = input_of(arguments);
  input.pad_left += config.lead;
  return {input, plain_fill,
          // With one tap there is too little to multiply for copies that are waited for two at a time.
          (plain_fill && arguments.k > 1) || (config.whole_samples && vectors_of_x) || config.arranged, vectors_of_x,
          config.arranged, raw_fill ? raw.units : x_arrivals(config, arguments.dtype, plain_fill, loader_warps),
          plain_fill_of(config, plan, static_cast<int>(arguments.pad_left), element_of_x), fours_aligned, config, plan,
          slot, store_of(destination, config.staged), static_cast<unsigned char*>(arranged_x), arguments, raw_fill,
          raw};
}

// What precedes a launch whose x is arranged. The launch may begin when this one has.
void launch_arrange(Parameters parameters, cudaStream_t stream);

template <class T>
void launch_instance(const Parameters& parameters, cudaStream_t stream);

}  // namespace convnorm::cuda::sm90_onchip
