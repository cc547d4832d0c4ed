#include "kernels/cuda/sm90_stream/launch.hpp"

#include <algorithm>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/sm90_stream/launch.cuh"

namespace convnorm::cuda::sm90_stream {

namespace {

bool aligned(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

// Whether a lane's positions of x are whole vectors, of at least four bytes; else each is loaded by itself.
bool x_in_vectors(const Arguments& a, const Config& c, int64_t element) {
  const int64_t bytes = std::max<int64_t>(c.tiles8 * element, 4);
  return a.l * element % bytes == 0 && aligned(a.x, std::min<int64_t>(bytes, 16));
}

Front front_of(const Arguments& a, const Config& c, const SharedPlan& plan, bool weights_first) {
  return {.packed = static_cast<const uint4*>(a.packed_weight()),
          .x = a.x,
          .c = static_cast<int>(a.c),
          .l = static_cast<int>(a.l),
          .blocks = c.blocks,
          .blocks_per_warp = c.blocks_per_warp,
          .row_tiles = c.row_tiles,
          .ring = plan.ring,
          .taps = static_cast<int16_t>(a.k),
          .n = static_cast<uint8_t>(a.n),
          .k_slices_log2 = static_cast<uint8_t>(c.k_slices_log2),
          .positions_log2 = static_cast<uint8_t>(c.positions_log2),
          .weights_first = weights_first};
}

Tail tail_of(const Arguments& a, const Config& c, const SharedPlan& plan, const SyncSlot& slot, int64_t element) {
  const auto byte = [](int value) { return static_cast<uint8_t>(value); };
  const bool power = (c.group_rows & (c.group_rows - 1)) == 0;
  Tail t = {.header = a.packed,
            .fingerprint = a.fingerprint,
            .bias = a.bias,
            .gamma = a.gamma,
            .beta = a.beta,
            .slot = slot,
            .o = static_cast<int>(a.o),
            .l_out = static_cast<int>(a.l_out),
            .sums_expected = plan.sums_expected,
            .moments_expected = plan.moments_expected,
            .received = plan.received,
            .moments = plan.moments,
            .group_units = c.group_units,
            .cluster_units = c.cluster_units(),
            .eps = static_cast<float>(a.eps),
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
            .even = c.even,
            .has_norm = a.groups > 0,
            .has_pre = a.pre != CONVNORM_NONE,
            .y_vectors = a.l_out % kPerLane == 0 && aligned(a.y, kPerLane * element),
            .slope_per_channel = a.post_slope_per_channel,
            .post_count = byte(a.post_count),
            .y = a.y,
            .residual = a.residual,
            .slope = a.post_slope,
            .scale = a.film_scale,
            .shift = a.film_shift,
            .post = {}};
  for (int i = 0; i < a.post_count; ++i) t.post[i] = {a.post[i].op, a.post[i].param};
  return t;
}

}  // namespace

void launch_stream(const Arguments& arguments, const Config& config, const SyncSlot& slot, bool constant_weights,
                   cudaStream_t stream) {
  with_device_element(arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    const SharedPlan plan = shared_plan(config, static_cast<int>(arguments.n));
    const Parameters parameters = {front_of(arguments, config, plan, constant_weights),
                                   tail_of(arguments, config, plan, slot, sizeof(Element)), arguments};
    const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(config.row_tiles << config.k_slices_log2),
                                            static_cast<unsigned>(config.tiles / config.row_tiles)),
                               .block = dim3(32 * kWarps),
                               .cluster = static_cast<unsigned>(config.cluster()),
                               .shared_bytes = static_cast<size_t>(plan.ring),
                               .cooperative = config.exchange == Exchange::kWords,
                               .programmatic = constant_weights};
    const int taps = x_in_vectors(arguments, config, sizeof(Element)) ? config.taps : 0;
    switch (taps) {
      case 5:
        return launch_instance<Element, 5>(config.tiles8, parameters, shape, stream);
      case 3:
        return launch_instance<Element, 3>(config.tiles8, parameters, shape, stream);
      default:
        return launch_instance<Element, 0>(config.tiles8, parameters, shape, stream);
    }
  });
}

}  // namespace convnorm::cuda::sm90_stream
