#include "kernels/cuda/moments/plan.hpp"

#include <algorithm>
#include <cstdint>

#include "descriptor/text.hpp"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/recompute/plan.hpp"

namespace convnorm::cuda::moments {

namespace {

using Reason = std::string;

constexpr int kMostMeasureBytes = 64 << 10;   // of shared memory: several CTAs an SM
constexpr int64_t kFewestChannels = 8;        // half of a block of recompute's
constexpr int64_t kChannelsPerColumn = 2;     // each must pay for its moments
constexpr int64_t kFewestValues = 64;         // of a group
constexpr int64_t kMostGroupChannels = 4096;  // that one CTA merges
constexpr int64_t kChunkChannels = 64;
constexpr int64_t kCtasPerSm = 2;
constexpr int64_t kLeastSlice = 256;  // positions
constexpr int kManyColumns = 16;      // whose many squares want short slices
constexpr int kMostTile = 1024;
constexpr int kMostSlices = 64;
constexpr int64_t kLongest = int64_t{1} << 29;  // positions: scaled inputs stay in the range of fp16

int64_t inputs_under(const Problem& p, int64_t positions) {
  return (positions - 1) * p.stride + p.dilation * (p.k - 1) + 1;
}

// Slices of whole tiles, such that every SM has some and nobody has to merge very many.
bool cut_slices(const Problem& p, const Sizes& sizes, const DeviceLimits& device, Config& c) {
  const int64_t units = p.n * p.conv_groups;
  int64_t positions = quotient_up(sizes.l_out * units, kCtasPerSm * device.sm_count);
  positions = std::max(positions, quotient_up(sizes.l_out, kMostSlices));
  positions = std::clamp<int64_t>(positions, kLeastSlice, kMostTile);
  if (c.columns > kManyColumns) positions = std::max<int64_t>(positions / 4, kLeastSlice / 4);
  c.tile = static_cast<int>(quotient_up(positions, 32) * 32);
  while (c.tile > 32 && measure_bytes(c, sizes.c_per_conv_group, inputs_under(p, c.tile)) > kMostMeasureBytes)
    c.tile /= 2;
  if (measure_bytes(c, sizes.c_per_conv_group, inputs_under(p, c.tile)) > device.shared_per_block_optin) return false;
  const int64_t tiles = quotient_up(sizes.l_out, c.tile);
  c.slice_tiles = static_cast<int>(quotient_up(tiles, kMostSlices));
  c.slices = static_cast<int>(quotient_up(tiles, c.slice_tiles));
  return true;
}

}  // namespace

std::variant<Config, std::string> choose_config(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major < 8)
    return fmt::format("it is written for sm_80 and newer, and the device is {}", device.architecture());
  if (!has_norm(p)) return Reason("g=0: without a norm there are no statistics to take");
  if (p.pre.op != CONVNORM_NONE) return Reason("an operation before the norm changes the statistics");
  if (p.dtype == CONVNORM_F32 && p.precision == CONVNORM_HIGHEST) {
    return Reason("precision=highest: it forms fp32 products from 16-bit halves");
  }
  if (p.n == 0) return Reason("n=0: there is nothing to compute");
  const int64_t columns = sizes.c_per_conv_group * p.k;
  const bool glu = has_post(p, CONVNORM_GLU);
  if (glu && p.conv_groups > 1)
    return fmt::format("post=glu, cg={}: the channels of a pair lie in different conv groups", p.conv_groups);
  if (columns > kMostColumns || sizes.o_per_conv_group < std::max(kFewestChannels, kChannelsPerColumn * columns)) {
    return fmt::format(
        "{} channels of {} products do not pay for second moments (limit {} products, {} channels for each, {} in all)",
        sizes.o_per_conv_group, columns, kMostColumns, kChannelsPerColumn, kFewestChannels);
  }
  if (sizes.l_out * sizes.o_per_norm_group < kFewestValues) {
    return fmt::format("groups of {} values are measured directly (limit {})", sizes.l_out * sizes.o_per_norm_group,
                       kFewestValues);
  }
  if (sizes.o_per_norm_group > kMostGroupChannels) {
    return fmt::format("groups of {} channels are not merged by one CTA (limit {})", sizes.o_per_norm_group,
                       kMostGroupChannels);
  }
  if (std::max(sizes.l_out, p.l) > kLongest || p.stride > kLongest || sizes.k_span > kLongest) {
    return fmt::format("rows are longer than {}", kLongest);
  }

  const Problem plain = without_norm(p);
  auto stream = recompute::choose_config(plain, Sizes(plain), device);
  if (auto* reason = std::get_if<std::string>(&stream)) return std::move(*reason);
  Config c{};
  c.columns = static_cast<int>(columns);
  c.stream = std::get<recompute::Config>(stream);
  c.dependent = device.major >= 9;
  c.chunk_groups = static_cast<int>(std::clamp<int64_t>(kChunkChannels / sizes.o_per_norm_group, 1, p.groups));
  c.chunks = static_cast<int>(quotient_up(p.groups, c.chunk_groups));
  if (!cut_slices(p, sizes, device, c) || channels_bytes(c, sizes.o_per_norm_group) > device.shared_per_block_optin) {
    return fmt::format("s={}, d={}: the inputs of a window do not fit in shared memory", p.stride, p.dilation);
  }
  const int64_t units = p.n * p.conv_groups;
  if (units * c.slices > INT32_MAX || p.n * c.chunks > INT32_MAX || p.o * std::max<int64_t>(c.columns, 4) > INT32_MAX) {
    return Reason("there are too many rows for one launch");
  }
  const int64_t workspace = workspace_plan(c, p.n, p.conv_groups, sizes.c_per_conv_group).bytes;
  if (workspace > sizes.y_elements * element_size(p.dtype) + kWorkspaceAllowance) {
    return fmt::format("the moments of {} samples would take {} bytes, more than y", p.n, workspace);
  }
  return c;
}

}  // namespace convnorm::cuda::moments
