#include "kernels/cuda/sm90_stream/launch.hpp"

#include <algorithm>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm90_stream/launch.cuh"

namespace convnorm::cuda::sm90_stream {

namespace {

bool aligned(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

// Whether a lane's positions of x are whole vectors; else each is loaded by itself.
bool x_in_vectors(const Arguments& a, const Config& c, int64_t element) {
  const int64_t bytes = c.tiles8 * element;
  return a.l * element % bytes == 0 && aligned(a.x, std::min<int64_t>(bytes, 16));
}

Front front_of(const Arguments& a, const Config& c, const SharedPlan& plan) {
  const int block_vectors = static_cast<int>(a.k) * c.vectors_of_tap() * 32;
  return {.packed = static_cast<const uint4*>(a.packed_weight()),
          .x = a.x,
          .blocks = c.blocks,
          .blocks_per_warp = c.blocks_per_warp,
          .block_vectors = block_vectors,
          .c = static_cast<int>(a.c),
          .l = static_cast<int>(a.l),
          .taps = static_cast<int16_t>(a.k),
          .ring16 = static_cast<uint16_t>(plan.ring / 16),
          .expected_moments =
              static_cast<uint16_t>(c.exchange == Exchange::kCluster ? c.tile_samples * c.cluster_units() : 0),
          .tile_samples = static_cast<uint8_t>(c.tile_samples),
          .last_tile_samples = static_cast<uint8_t>(a.n - int64_t{c.sample_tiles - 1} * c.tile_samples),
          .k_slices_log2 = static_cast<uint8_t>(c.k_slices_log2),
          .slices_log2 = static_cast<uint8_t>(c.slices_log2),
          .positions_log2 = static_cast<uint8_t>(c.positions_log2),
          .alone = c.cluster() == 1};
}

// Bit by bit the distances at which lanes of a group merge: along a row those that hold positions, then from row to
// row. 0 where a lane holds fewer than kPerLane positions.
int merging_distances(const Config& c, int64_t l_out) {
  const int64_t lanes = l_out / kPerLane;
  if (l_out % kPerLane != 0 || (lanes & (lanes - 1)) != 0) return 0;
  const int of_row = 1 << c.lanes_per_row_log2();
  return static_cast<int>(lanes) - 1 + c.group_rows * of_row - of_row;
}

Tail tail_of(const Arguments& a, const Config& c, const SharedPlan& plan, const SyncSlot& slot, int64_t element) {
  const auto byte = [](int value) { return static_cast<uint8_t>(value); };
  const bool power = (c.group_rows & (c.group_rows - 1)) == 0, y_aligned = aligned(a.y, kPerLane * element);
  const bool straight = a.groups > 0 && a.pre == CONVNORM_NONE && c.straight(a.l_out);
  Tail t = {.header = a.packed,
            .fingerprint = a.fingerprint,
            .bias = a.bias,
            .gamma = a.gamma,
            .beta = a.beta,
            .slot = slot,
            .o = static_cast<int>(a.o),
            .l_out = static_cast<int>(a.l_out),
            .received = plan.received,
            .moments = plan.moments,
            .group_units = c.group_units,
            .cluster_units = c.cluster_units(),
            .group_channels =
                a.groups > 0 && a.pre == CONVNORM_NONE && a.bias != nullptr ? static_cast<int>(a.o / a.groups) : 0,
            .eps = a.eps,
            .inverse_count = 1.0f / static_cast<float>(32 * kPerLane * c.group_units),
            .eps_f32 = static_cast<float>(a.eps),
            .tile_channels = byte(c.tile_channels),
            .unit_rows = byte(c.unit_rows()),
            .group_rows = byte(c.group_rows),
            .slices_log2 = byte(c.slices_log2),
            .own_slices_log2 = byte(c.slices_log2 - c.k_slices_log2),
            .group_lanes = byte((power ? c.group_rows : 1) << c.lanes_per_row_log2()),
            .merging_lanes = byte(c.merging_lanes),
            .cluster = byte(c.cluster()),
            .exchange = byte(static_cast<int>(c.exchange)),
            .param_dtype = byte(a.param_dtype),
            .merged_by = byte(power && c.tile_channels == kTileRows ? merging_distances(c, a.l_out) : 0),
            .straight = straight && y_aligned,
            .even = c.even,
            .has_norm = a.groups > 0,
            .has_pre = a.pre != CONVNORM_NONE,
            .y_vectors = a.l_out % kPerLane == 0 && y_aligned,
            .slope_per_channel = a.post_slope_per_channel,
            .pre_slope_per_channel = a.pre_slope_per_channel,
            .post_count = byte(a.post_count),
            .y = a.y,
            .residual = a.residual,
            .pre_slope = a.pre == CONVNORM_PRELU ? a.pre_slope : nullptr,
            .slope = a.post_slope,
            .scale = a.film_scale,
            .shift = a.film_shift,
            .post = {}};
  for (int i = 0; i < a.post_count; ++i) t.post[i] = {a.post[i].op, a.post[i].param};
  return t;
}

Steps steps_of(const Arguments& a) {
  return {static_cast<int>(a.stride), static_cast<int>(a.dilation), static_cast<int>(a.pad_left), a.pad};
}

}  // namespace

void launch_stream(const Arguments& arguments, const Config& config, const SyncSlot& slot, bool constant_weights,
                   cudaStream_t stream) {
  with_device_element(arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    const SharedPlan plan = shared_plan(config);
    const Parameters parameters = {front_of(arguments, config, plan),
                                   tail_of(arguments, config, plan, slot, sizeof(Element)), steps_of(arguments)};
    const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(config.row_tiles << config.k_slices_log2),
                                            static_cast<unsigned>(config.tiles / config.row_tiles),
                                            static_cast<unsigned>(config.sample_tiles)),
                               .block = dim3(32 * kWarps),
                               .cluster = static_cast<unsigned>(config.cluster()),
                               .shared_bytes = static_cast<size_t>(plan.ring),
                               .cooperative = config.exchange == Exchange::kWords,
                               .programmatic = constant_weights};
    const int taps = x_in_vectors(arguments, config, sizeof(Element)) ? config.taps : 0;
    const auto launch_taps = [&](auto parts) {
      constexpr int kParts = decltype(parts)::value;
      switch (taps) {
        case 5:
          return launch_instance<Element, kParts, 5>(config.tiles8, parameters, shape, stream);
        case 3:
          return launch_instance<Element, kParts, 3>(config.tiles8, parameters, shape, stream);
        default:
          return launch_instance<Element, kParts, 0>(config.tiles8, parameters, shape, stream);
      }
    };
    if constexpr (sizeof(Element) == 2) {
      launch_taps(std::integral_constant<int, 1>());
    } else if (config.parts == 2) {
      launch_taps(std::integral_constant<int, 2>());
    } else {
      launch_taps(std::integral_constant<int, 3>());
    }
  });
}

}  // namespace convnorm::cuda::sm90_stream
