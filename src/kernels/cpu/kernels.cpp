// The tables of kernels, one per instruction set.
#include "kernels/cpu/kernels.hpp"

#include <vector>

#include "kernels/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/conv-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convnorm::cpu::HWY_NAMESPACE {

const Kernels* table() {
  static const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  static const Kernels kernels = {
      .target = hwy::TargetName(HWY_TARGET),
      .lanes = lanes,
      .wide_panel = kWideVectors * lanes,
      .wide_rows = kWideRows,
      .narrow_panel = kNarrowVectors * lanes,
      .channel_block = kWideVectors * lanes,
      .fetch_row = fetch_row,
      .take_every = take_every,
      .deal_phases = deal_phases,
      .conv_wide = conv_wide,
      .conv_narrow = conv_narrow,
      .conv_channels = conv_channels,
      .row_moments = row_moments,
      .column_moments = column_moments,
      .norm_row = norm_row,
      .pointwise = pointwise,
      .film = film,
      .add = add,
      .glu = glu,
      .to_float = to_float,
      .from_float = from_float,
      .fma_chains = fma_chains,
      .copy = copy,
  };
  return &kernels;
}

}  // namespace convnorm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convnorm::cpu {

HWY_EXPORT(table);

namespace {

// The tables are asked by target and not through Highway's own choice, which is one for the whole process.
const Kernels* table_of([[maybe_unused]] int64_t target) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  return HWY_STATIC_DISPATCH(table)();
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(table)[chosen.GetIndex()]();
#endif
}

std::vector<const char*> names(int64_t mask) {
  std::vector<const char*> result;
  for (int64_t rest = mask; rest != 0; rest &= rest - 1) result.push_back(hwy::TargetName(rest & -rest));
  return result;
}

}  // namespace

// Highway numbers better targets lower.
const std::vector<const char*>& available_targets() {
  static const std::vector<const char*> result = names(hwy::SupportedTargets() & HWY_TARGETS);
  return result;
}

const std::vector<const char*>& compiled_targets() {
  static const std::vector<const char*> result = names(HWY_TARGETS);
  return result;
}

const Kernels* find_kernels(const std::string& target) {
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t bit = rest & -rest;
    if (target == hwy::TargetName(bit)) return table_of(bit);
  }
  return nullptr;
}

}  // namespace convnorm::cpu
#endif  // HWY_ONCE
