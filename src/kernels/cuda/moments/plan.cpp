#include "kernels/cuda/moments/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "descriptor/text.hpp"
#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::moments {

namespace {

using Reason = std::string;

constexpr int kMostMeasureBytes = 64 << 10;   // of shared memory: several CTAs an SM
constexpr int64_t kFewestChannels = 8;        // half of a block
constexpr int64_t kChannelsPerColumn = 2;     // each must pay for its moments
constexpr int64_t kFewestValues = 64;         // of a group
constexpr int64_t kMostGroupChannels = 4096;  // that one CTA merges
constexpr int64_t kChunkChannels = 64;
constexpr int64_t kLeastSlice = 256;  // positions
constexpr int kMostTile = 1024;
constexpr int kMostSlices = 64;
constexpr int64_t kLongest = int64_t{1} << 29;              // positions: scaled inputs stay in the range of fp16
constexpr int64_t kWorkspaceAllowance = int64_t{64} << 20;  // beyond the bytes of y

int64_t inputs_under(const Problem& p, int64_t positions) {
  return (positions - 1) * p.stride + p.dilation * (p.k - 1) + 1;
}

// Slices of whole tiles, such that every SM has some and nobody has to merge very many.
bool cut_slices(const Problem& p, const Sizes& sizes, const DeviceLimits& device, Config& c) {
  const int64_t units = p.n * p.conv_groups;
  int64_t positions = quotient_up(sizes.l_out * units, int64_t{kPerSm} * device.sm_count);
  positions = std::max(positions, quotient_up(sizes.l_out, kMostSlices));
  positions = std::clamp<int64_t>(positions, kLeastSlice, kMostTile);
  if (c.columns > kDepth) positions = std::max<int64_t>(positions / 4, kLeastSlice / 4);  // many squares: short slices
  c.tile = static_cast<int>(quotient_up(positions, 32) * 32);
  while (c.tile > 32 && measure_bytes(c, sizes.c_per_conv_group, inputs_under(p, c.tile)) > kMostMeasureBytes)
    c.tile /= 2;
  if (measure_bytes(c, sizes.c_per_conv_group, inputs_under(p, c.tile)) > device.shared_per_block_optin) return false;
  const int64_t tiles = quotient_up(sizes.l_out, c.tile);
  c.slice_tiles = static_cast<int>(quotient_up(tiles, kMostSlices));
  c.slices = static_cast<int>(quotient_up(tiles, c.slice_tiles));
  return true;
}

// Time of the last launch in units of what a warp needs for one quad (32 positions of a block). A CTA begins by loading
// its window, a block by loading its weights; blocks are cut among as many CTAs as makes the least of it.
double share_blocks(const Problem& p, const DeviceLimits& device, int per_sm, int64_t inputs, Config& c) {
  constexpr double kBegin = 4, kPerInput = 0.06, kPerBlock = 0.7;
  constexpr double kAlone = 1;  // CTAs of an SM take turns, and one alone leaves the SM waiting for half of the time
  const int64_t at_once = int64_t{per_sm} * device.sm_count;
  const int warps_apart = kWarps / c.position_warps;  // on different blocks
  const double begin = kBegin + kPerInput * static_cast<double>(quotient_up(inputs, kThreads));
  double best = 0;
  for (int parts = 1; parts <= std::max(1, c.blocks() / warps_apart); ++parts) {
    const int64_t share = quotient_up(c.blocks(), parts), used = quotient_up(c.blocks(), share);
    const int64_t waves = quotient_up(p.n * p.conv_groups * c.windows * used, at_once);
    const double blocks = static_cast<double>(quotient_up(share, warps_apart));
    const double time = static_cast<double>(waves) * (begin + blocks * (c.quads + kPerBlock)) * (kAlone + per_sm);
    if (best > 0 && time >= best) continue;
    best = time;
    c.parts_of_blocks = static_cast<int>(used);
  }
  return best;
}

// The window that takes the least time, with as many CTAs an SM as there are registers for, or fewer.
bool cut_windows(const Problem& p, const Sizes& sizes, const DeviceLimits& device, Config& c) {
  const auto element = static_cast<int>(element_size(p.dtype));
  double best = 0;
  Config tried = c;
  for (int per_sm = kPerSm; per_sm >= 1; --per_sm) {
    const int64_t limit = std::min(device.shared_per_sm / per_sm - kReservedBytes, device.shared_per_block_optin);
    for (tried.quads = 4; tried.quads >= 1; tried.quads /= 2) {
      for (tried.position_warps = kWarps; tried.position_warps >= 1; tried.position_warps /= 2) {
        if (kWarps / tried.position_warps > c.blocks()) break;
        const int64_t width = inputs_under(p, positions_held(tried, element));
        if (stream_bytes(tried, sizes.c_per_conv_group, width, element) > limit) continue;
        // Rows, and y itself, may start anywhere in a sector.
        tried.windows = quotient_up(sizes.l_out + kSectorBytes / element - 1, tried.window());
        const double time = share_blocks(p, device, per_sm, sizes.c_per_conv_group * width, tried);
        if (best > 0 && time >= best) continue;
        best = time;
        c = tried;
      }
    }
  }
  return best > 0;
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

  Config c{};
  c.columns = static_cast<int>(columns);
  c.k16 = columns <= kDepth ? 1 : columns <= 2 * kDepth ? 2 : 4;
  c.parts = p.dtype == CONVNORM_F32 ? 2 : 1;
  c.dependent = device.major >= 9;
  const int64_t sector = kSectorBytes / element_size(p.dtype);
  c.classes = p.layout == CONVNORM_NCL ? static_cast<int>(sector / std::gcd(sector, sizes.l_out)) : 1;
  c.block_channels = glu ? kBlockRows / 2 : kBlockRows;
  const int64_t channels = glu ? sizes.c_y : sizes.o_per_conv_group;
  c.class_blocks = static_cast<int>(quotient_up(quotient_up(channels, c.classes), c.block_channels));
  c.chunk_groups = static_cast<int>(std::clamp<int64_t>(kChunkChannels / sizes.o_per_norm_group, 1, p.groups));
  c.chunks = static_cast<int>(quotient_up(p.groups, c.chunk_groups));
  if (!cut_slices(p, sizes, device, c) || !cut_windows(p, sizes, device, c) ||
      channels_bytes(c, sizes.o_per_norm_group) > device.shared_per_block_optin) {
    return fmt::format("s={}, d={}: the inputs of a window do not fit in shared memory", p.stride, p.dilation);
  }
  const int64_t units = p.n * p.conv_groups;
  if (units * c.windows * c.parts_of_blocks > INT32_MAX || units * c.slices > INT32_MAX || p.n * c.chunks > INT32_MAX ||
      p.o * std::max<int64_t>(c.columns, 4) > INT32_MAX) {
    return Reason("there are too many rows for one launch");
  }
  const int64_t workspace = workspace_plan(c, p.n, p.conv_groups, sizes.c_per_conv_group).bytes;
  if (workspace > sizes.y_elements * element_size(p.dtype) + kWorkspaceAllowance) {
    return fmt::format("the moments of {} samples would take {} bytes, more than y", p.n, workspace);
  }
  return c;
}

}  // namespace convnorm::cuda::moments
