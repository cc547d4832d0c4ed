#include "kernels/cuda/moments/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "descriptor/text.hpp"

namespace convnorm::cuda::moments {

namespace {

using Reason = std::string;

constexpr int kPerSm = 2;                          // CTAs of the last launch
constexpr int kReservedBytes = 1 << 10;            // of shared memory, by the system, per CTA
constexpr int kMostMeasureBytes = 64 << 10;        // of shared memory: several CTAs an SM
constexpr int64_t kFewestChannels = 8;             // half of a block
constexpr int64_t kChannelsPerColumn = 2;          // each must pay for its moments
constexpr int64_t kFewestValues = 64;              // of a group
constexpr int64_t kMostGroupChannels = 4096;       // that one CTA merges
constexpr int64_t kChunkChannels = 64;
constexpr int64_t kLeastSlice = 256;               // positions
constexpr int kMostTile = 1024;
constexpr int kMostSlices = 64;
constexpr int64_t kLongest = int64_t{1} << 29;     // positions: scaled inputs stay in the range of fp16
constexpr int64_t kWorkspaceAllowance = int64_t{64} << 20;  // beyond the bytes of y

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t inputs_under(const Problem& p, int64_t positions) { return (positions - 1) * p.stride + p.dilation * (p.k - 1) + 1; }

// Slices of whole tiles, such that every SM has some and nobody has to merge very many.
bool cut_slices(const Problem& p, const Sizes& sizes, const DeviceLimits& device, Config& c) {
  const int64_t units = p.n * p.conv_groups;
  int64_t positions = quotient_up(sizes.l_out * units, int64_t{kPerSm} * device.sm_count);
  positions = std::clamp<int64_t>(positions, kLeastSlice, kMostTile);
  if (c.columns > kDepth) positions = std::max<int64_t>(positions / 4, kLeastSlice / 4);  // many squares: short slices
  c.tile = static_cast<int>(quotient_up(positions, 32) * 32);
  while (c.tile > 32 && measure_bytes(c, sizes.c_per_conv_group, inputs_under(p, c.tile)) > kMostMeasureBytes) c.tile /= 2;
  if (measure_bytes(c, sizes.c_per_conv_group, inputs_under(p, c.tile)) > device.shared_per_block_optin) return false;
  const int64_t tiles = quotient_up(sizes.l_out, c.tile);
  c.slice_tiles = static_cast<int>(quotient_up(tiles, kMostSlices));
  c.slices = static_cast<int>(quotient_up(tiles, c.slice_tiles));
  return true;
}

// How much of the GPU is busy over all waves of CTAs, when blocks are shared among as few CTAs as that takes.
double share_blocks(const Problem& p, const DeviceLimits& device, int per_sm, Config& c) {
  const int64_t at_once = int64_t{per_sm} * device.sm_count;
  const int most_parts = std::max(1, c.blocks() / (kWarps / c.position_warps));
  constexpr double kGain = 1.03;  // that another part must bring
  double best = 0;
  for (int parts = 1; parts <= most_parts; ++parts) {
    const int64_t used = quotient_up(c.blocks(), quotient_up(c.blocks(), parts));
    const int64_t ctas = p.n * p.conv_groups * c.windows * used;
    const double busy = static_cast<double>(ctas) / static_cast<double>(quotient_up(ctas, at_once) * at_once);
    if (busy <= best * kGain) continue;
    best = busy;
    c.parts_of_blocks = static_cast<int>(used);
  }
  return best;
}

// The window that keeps most of the GPU busy, as many CTAs an SM as wanted, or one at least.
bool cut_windows(const Problem& p, const Sizes& sizes, const DeviceLimits& device, Config& c) {
  const auto element = static_cast<int>(element_size(p.dtype));
  for (const int per_sm : {kPerSm, 1}) {
    const int64_t limit = std::min(device.shared_per_sm / per_sm - kReservedBytes, device.shared_per_block_optin);
    double best = 0;
    Config tried = c;
    for (tried.quads = 4; tried.quads >= 1; tried.quads /= 2) {
      for (tried.position_warps = kWarps; tried.position_warps >= 1; tried.position_warps /= 2) {
        if (kWarps / tried.position_warps > c.blocks()) break;
        const int64_t width = inputs_under(p, positions_held(tried, element));
        if (stream_bytes(tried, sizes.c_per_conv_group, width, element) > limit) continue;
        // Rows, and y itself, may start anywhere in a sector.
        tried.windows = quotient_up(sizes.l_out + kSectorBytes / element - 1, tried.window());
        // Every window has some inputs to load twice, every row of it a beginning.
        constexpr double kOverhead = 32;
        const double useful = static_cast<double>(sizes.l_out) / static_cast<double>(tried.windows * tried.window());
        const double positions = tried.window();
        const double score = share_blocks(p, device, per_sm, tried) * useful * positions / (positions + kOverhead);
        if (score <= best) continue;
        best = score;
        c = tried;
      }
    }
    if (best > 0) return true;
  }
  return false;
}

}  // namespace

std::variant<Config, std::string> choose_config(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major < 8) return fmt::format("it is written for sm_80 and newer, and the device is {}", device.architecture());
  if (!has_norm(p)) return Reason("g=0: without a norm there are no statistics to take");
  if (p.pre.op != CONVNORM_NONE) return Reason("an operation before the norm changes the statistics");
  if (p.dtype == CONVNORM_F32 && p.precision == CONVNORM_HIGHEST) {
    return Reason("precision=highest: it forms fp32 products from 16-bit halves");
  }
  if (p.n == 0) return Reason("n=0: there is nothing to compute");
  const int64_t columns = sizes.c_per_conv_group * p.k;
  const bool glu = has_post(p, CONVNORM_GLU);
  if (glu && p.conv_groups > 1) return fmt::format("post=glu, cg={}: the channels of a pair lie in different conv groups", p.conv_groups);
  if (columns > kMostColumns || sizes.o_per_conv_group < std::max(kFewestChannels, kChannelsPerColumn * columns)) {
    return fmt::format(
        "{} channels of {} products do not pay for second moments (limit {} products, {} channels for each, {} in all)",
        sizes.o_per_conv_group, columns, kMostColumns, kChannelsPerColumn, kFewestChannels);
  }
  if (sizes.l_out * sizes.o_per_norm_group < kFewestValues) {
    return fmt::format("groups of {} values are measured directly (limit {})", sizes.l_out * sizes.o_per_norm_group, kFewestValues);
  }
  if (sizes.o_per_norm_group > kMostGroupChannels) {
    return fmt::format("groups of {} channels are not merged by one CTA (limit {})", sizes.o_per_norm_group, kMostGroupChannels);
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
