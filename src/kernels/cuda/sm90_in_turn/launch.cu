#include "kernels/cuda/sm90_in_turn/launch.hpp"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm90_in_turn/launch.cuh"
#include "kernels/cuda/sm90_onchip/launch.cuh"

namespace convnorm::cuda::sm90_in_turn {

namespace {

Parameters parameters_of(const Arguments& arguments, const Config& c, const SyncSlot& slot) {
  const int element = arguments.dtype == CONVNORM_F32 ? 4 : 2, stride = static_cast<int>(arguments.stride);
  const auto x = reinterpret_cast<uintptr_t>(arguments.x);
  const SharedPlan plan(c, element);
  const sm90_onchip::RawFill raw = sm90_onchip::raw_fill_of(c, plan.x_part_bytes, stride, element);
  // A warp that fills a slot must have had a unit of the chunk that was there before: it has waited for no other, and
  // tiles give back their chunks in any order, so that the barrier could be two phases behind.
  const bool same_warps = raw.units >= kLoaderWarps || raw.units * c.x_slots % kLoaderWarps == 0;
  const bool raw_fill = c.raw_rows && x % 4 == 0 && same_warps;
  // Rows of y start on eight bytes, are staged, or would start on eight bytes if y did.
  const Store store = c.staged                                            ? Store::kStaged
                      : reinterpret_cast<uintptr_t>(arguments.y) % 8 == 0 ? Store::kVectors
                                                                          : Store::kElements;
  const bool fours_aligned = arguments.l % 4 == 0 && x % (4 * element) == 0;
  Parameters p = {input_of(arguments), c,   plan, slot,     store, raw_fill ? raw.units : kLoaderWarps, raw_fill,
                  fours_aligned,       raw, {},   arguments};
  p.input.pad_left += c.lead;
  for (int tap = 0; tap < static_cast<int>(arguments.k); ++tap) {
    const int position = c.lead + tap * static_cast<int>(arguments.dilation);
    p.tap_rows[tap] = position % stride * c.phase_rows + position / stride;
  }
  return p;
}

}  // namespace

void launch_in_turn(const Arguments& arguments, const Config& config, const SyncSlot& slot, cudaStream_t stream) {
  const Parameters parameters = parameters_of(arguments, config, slot);
  with_device_element(arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    launch_instance<Traits<Element, sizeof(Element) == 4 ? 2 : 1>>(parameters, stream);
  });
}

}  // namespace convnorm::cuda::sm90_in_turn
