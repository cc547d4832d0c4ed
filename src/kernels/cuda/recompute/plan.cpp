#include "kernels/cuda/recompute/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "descriptor/text.hpp"
#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::recompute {

namespace {

using Reason = std::string;

constexpr int64_t kFewestChannels = 8;          // half of a block
constexpr int64_t kLongest = int64_t{1} << 29;  // positions and inputs of a row are counted in 32 bits
constexpr int kMostTeamGroups = 4096;           // moments that a CTA reads
constexpr int64_t kMostTiles = 64;              // of a window
constexpr int64_t kShort = 256;                 // positions of a row that a warp measures alone

int64_t inputs_under(const Problem& p, int64_t positions) {
  return (positions - 1) * p.stride + p.dilation * (p.k - 1) + 1;
}

// The depths that instances exist for; the least of each type for a GELU alone, as raw audio wants it.
int deep_enough(int pairs, bool fp32, bool gelu) {
  constexpr int kDepths[2][4] = {{1, 2, 4, 4}, {2, 3, 6, 12}};
  for (int i = gelu ? 0 : 1; i < 4; ++i) {
    const int k16 = kDepths[fp32 ? 1 : 0][i];
    if (kPairsDeep * k16 >= pairs) return k16;
  }
  return 0;
}

// Ranges of channels of y that hold whole norm groups: as short as blocks can be filled.
void cut_ranges(const Problem& p, const Sizes& sizes, Config& c) {
  const bool glu = has_post(p, CONVNORM_GLU);
  const int64_t of_group = std::max<int64_t>(1, sizes.o_per_norm_group);
  const int64_t channels = glu ? sizes.c_y : sizes.o_per_conv_group;
  const int64_t sector = kSectorBytes / element_size(p.dtype);
  c.classes = p.layout == CONVNORM_NCL ? static_cast<int>(sector / std::gcd(sector, sizes.l_out)) : 1;
  c.block_channels = glu ? kBlockRows / 2 : kBlockRows;
  int64_t range = channels;
  if (of_group > 1 && channels % of_group == 0) {
    range = std::min(channels, std::lcm(of_group, int64_t{c.classes} * c.block_channels));
  }
  c.range = static_cast<int>(range);
  c.class_blocks = static_cast<int>(quotient_up(quotient_up(range, c.classes), c.block_channels));
  c.ranges = static_cast<int>(quotient_up(channels, range));
}

// Of a call, on an H200: what it begins and ends with, every further window or task, and the issue slots of the loops
// at the rate that they reach. Measured: 252 us for w2v2_l0 (108 us of slots, 4 windows), 42.4 for w2v2_l0_b1 (14,
// 1), 33.7 for encodec_stem (6, 1), 59.8 for eeg_stem, whose long products spill registers (6, 1).
double microseconds(const Problem& p, const Sizes& sizes, const Config& c) {
  constexpr double kClocksPerUs = 1700, kRate = 0.55, kSpilled = 4.5, kBlock = 250, kTile = 60, kInput = 20;
  constexpr double kTurns = kWarps / 4 * kPerSm;  // warps that share a scheduler
  const bool norm = has_norm(p);
  const double per_quad = ((norm ? 32 + 12 * c.k16 : 0) + 240 + 12 * c.k16) * (c.k16 > 6 ? kSpilled : 1);
  const int64_t blocks = quotient_up(c.set_blocks, kWarps / c.position_warps);
  const auto tiles = static_cast<double>(quotient_up(std::min<int64_t>(c.share(), sizes.l_out), c.tile()));
  const double windows = static_cast<double>(c.windows) * c.rounds * (norm && c.windows > 1 ? 2 : 1);
  const double inputs = static_cast<double>(sizes.c_per_conv_group * c.width) / kThreads * kInput * windows;
  const double loops =
      static_cast<double>(blocks) * (tiles * (c.quads * per_quad + kTile) + kBlock * c.windows) * c.rounds;
  return (norm ? 11.5 : 6) + 4 * (windows - 1) + kTurns * (loops + inputs) / (kRate * kClocksPerUs);
}

}  // namespace

// What says little about which configuration is best is left to the end: channels that are loaded one after the other
// and moments that a CTA reads. Held against 36 problems on an H200; 16-bit types with a GELU alone take a fifth less.
double expected_us(const Problem& p, const Sizes& sizes, const Config& c) {
  constexpr double kLaunchUs = 3, kStoreBytesPerUs = 4.2e6, kUsPerCta = 0.015, kUsPerWord = 1.3e-3;
  const double channel_us = p.dtype == CONVNORM_F32 ? 0.25 : 0.6;
  const double stores = static_cast<double>(sizes.y_elements * element_size(p.dtype)) / kStoreBytesPerUs;
  double time = microseconds(p, sizes, c) * (c.k16 == 1 ? 0.8 : 1);
  if (has_norm(p)) {
    time += static_cast<double>(sizes.c_per_conv_group) * c.windows * c.rounds * channel_us;
    if (c.team > 1) time += c.rounds * c.team * (kUsPerCta + kUsPerWord * c.set_groups);
  }
  return std::max(time, kLaunchUs + stores);
}

std::variant<Config, std::string> choose_config(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major < 8)
    return fmt::format("it is written for sm_80 and newer, and the device is {}", device.architecture());
  if (p.pre.op != CONVNORM_NONE) return Reason("an operation before the norm would have to be applied twice");
  if (p.dtype == CONVNORM_F32 && p.precision == CONVNORM_HIGHEST) {
    return Reason("precision=highest: it forms fp32 products from 16-bit halves");
  }
  if (p.n == 0) return Reason("n=0: there is nothing to compute");
  const int64_t columns = sizes.c_per_conv_group * p.k;
  const bool glu = has_post(p, CONVNORM_GLU);
  if (glu && p.conv_groups > 1)
    return fmt::format("post=glu, cg={}: the channels of a pair lie in different conv groups", p.conv_groups);
  if (has_norm(p) && sizes.o_per_conv_group % sizes.o_per_norm_group != 0)
    return fmt::format("g={}, cg={}: norm groups span conv groups", p.groups, p.conv_groups);
  if (columns > kMostColumns || sizes.o_per_conv_group < kFewestChannels) {
    return fmt::format("{} channels of {} products (limit {} products, {} channels at least)", sizes.o_per_conv_group,
                       columns, kMostColumns, kFewestChannels);
  }
  if (std::max({sizes.l_out, p.l, sizes.k_span, p.pad_left, p.pad_right, 64 * p.stride}) > kLongest) {
    return fmt::format("rows, pads or strides are longer than {}", kLongest);
  }
  if (p.o * std::max<int64_t>(columns, 4) > INT32_MAX) return Reason("there are too many channels");

  const bool fp32 = p.dtype == CONVNORM_F32;
  const auto element = static_cast<int>(element_size(p.dtype));
  Config c{};
  c.pairs_of_channels = sizes.c_per_conv_group % 2 == 0;
  c.pairs = static_cast<int>(c.pairs_of_channels ? columns / 2 : sizes.c_per_conv_group * quotient_up(p.k, 2));
  c.parts = fp32 ? 2 : 1;
  c.k16 = deep_enough(c.products() * c.pairs, fp32, p.post_count == 1 && p.post[0].op == CONVNORM_GELU);
  if (c.k16 == 0) return fmt::format("{} pairs of products are too many", c.pairs);
  cut_ranges(p, sizes, c);
  const int64_t of_group = sizes.o_per_norm_group;
  const int step = has_norm(p) && of_group > 1 ? c.range_blocks() : 1;
  const int64_t most_ctas = int64_t{kPerSm} * device.sm_count;
  const int64_t limit = std::min(device.shared_per_sm / kPerSm - kReservedBytes, device.shared_per_block_optin);
  // Rows may start anywhere in a sector.
  const int64_t positions = sizes.l_out + (c.classes > 1 ? kSectorBytes / element - 1 : 0);
  const int64_t units = p.n * p.conv_groups;
  // Sums of a short row have one order then, whatever else follows from the number of samples and from how long the
  // longest of them is: a sample has the same bits alone and beside longer ones.
  const bool alone = has_norm(p) && sizes.l_out <= kShort;

  Config best{};
  double best_time = 0;
  // False if it does not fit.
  const auto consider = [&](Config t) {
    const int64_t width = inputs_under(p, t.window() + kSectorBytes / element);
    if (width * sizes.c_per_conv_group > limit / 4) return false;
    t.width = static_cast<int>(width);
    const int64_t windows = quotient_up(quotient_up(positions, t.team), t.window());
    if (windows > INT32_MAX / 2) return true;
    t.windows = static_cast<int>(windows);
    if (quotient_up(positions, t.share()) < t.team) return true;  // CTAs without a position
    if (int64_t{t.set_groups} * t.team > kMostTeamGroups) return true;
    if (shared_plan(t, sizes.c_per_conv_group, element).bytes > limit) return false;
    const int64_t tasks = units * t.sets;
    t.teams = static_cast<int>(std::min<int64_t>(tasks, most_ctas / t.team));
    const int64_t rounds = quotient_up(tasks, t.teams);
    if (rounds > INT32_MAX / 2) return true;
    t.rounds = static_cast<int>(rounds);
    const double time = microseconds(p, sizes, t);
    if (best_time > 0 && time >= best_time) return true;
    best_time = time, best = t;
    return true;
  };
  for (c.set_blocks = step;; c.set_blocks *= 2) {
    c.set_blocks = std::min(c.set_blocks, c.blocks());
    c.sets = static_cast<int>(quotient_up(c.blocks(), c.set_blocks));
    if (!has_norm(p)) {
      c.set_groups = 0;
    } else if (of_group == 1) {
      c.set_groups = c.set_rows();
    } else if (c.sets == 1) {
      c.set_groups = static_cast<int>(sizes.o_per_conv_group / of_group);
    } else {
      c.set_groups = static_cast<int>(c.set_channels() / of_group * (glu ? 2 : 1));
    }
    for (c.quads = 1; c.quads <= 4; c.quads *= 2) {
      for (c.position_warps = 1; c.position_warps <= kWarps; c.position_warps *= 2) {
        if (alone ? c.position_warps > 1 : kWarps / c.position_warps > c.set_blocks && c.position_warps < kWarps)
          continue;
        const int64_t tiles = quotient_up(positions, c.tile());
        for (int64_t team = 1;;) {
          const int64_t own = quotient_up(tiles, team);  // tiles of a CTA
          c.team = static_cast<int>(quotient_up(tiles, own));
          // As few windows as fit.
          for (int64_t windows = 1;; windows *= 2) {
            c.tiles = static_cast<int>(std::min<int64_t>(quotient_up(own, windows), kMostTiles));
            if (consider(c) || c.tiles == 1) break;
          }
          if (own == 1 || alone) break;
          team = quotient_up(tiles, own - 1);
          if (team > most_ctas) break;
        }
      }
    }
    if (c.set_blocks == c.blocks()) break;
  }
  if (best_time == 0)
    return fmt::format("s={}, d={}: the inputs of a window do not fit in shared memory", p.stride, p.dilation);
  return best;
}

}  // namespace convnorm::cuda::recompute
