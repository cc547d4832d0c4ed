#include "kernels/cuda/sm90_two_pass/plan.hpp"

#include <algorithm>

#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/sm90_onchip/plan.hpp"

namespace convnorm::cuda::sm90_two_pass {

namespace {

constexpr int kColumns = 128;  // of a tile

struct Shape {
  Width width;
  int warpgroups;
};
constexpr Shape kShapes[] = {{Width::kTwo, 2}, {Width::kTwo, 1}, {Width::kPair, 1}};

// The first pass alone: a convolution without norm and ops after it, whose result has channels first.
Problem first_pass_of(const Problem& p) {
  Problem first = without_norm(p);
  first.post_count = 0;
  first.layout = CONVNORM_NCL;
  return first;
}

std::variant<Config, std::string> with_tiles(const Problem& p, const Sizes& sizes, DeviceLimits device,
                                             const Shape& shape) {
  if (shape.width == Width::kPair) {
    device.shared_per_block_optin = device.shared_per_sm / 2 - kReservedBytes;
    device.sm_count *= 2;
  }
  const Problem first = first_pass_of(p);
  auto answer = sm90_onchip::choose_config(
      first, Sizes(first), device,
      {.tile_columns = kColumns, .warpgroups = shape.warpgroups, .arranged = false, .raw_rows = false});
  if (auto* reason = std::get_if<std::string>(&answer)) return std::move(*reason);
  Config config{};
  config.width = shape.width;
  config.tiles = std::get<sm90_onchip::Config>(answer);
  sm90_onchip::Config& tiles = config.tiles;
  if (tiles.samples > 1) return "l=" + std::to_string(p.l) + ": short samples, several of which share a tile";
  tiles.group_rows = Divisor(static_cast<uint32_t>(sizes.o_per_norm_group));
  if (p.layout == CONVNORM_NLC) {
    tiles.plain_rows = tiles.plain_fill = tiles.by_fours = false;
  }
  // That first fill is shared out among more warps than a pair's CTA has.
  if (shape.width == Width::kPair) tiles.plain_fill = false;
  config.segments = tiles.column_tiles;
  constexpr int kRows = kBlockRows;
  config.blocks = static_cast<int>(quotient_up(p.o, kRows));
  // Of groups that do not fit evenly, a block may have an end and a beginning beside those that lie in it.
  const int64_t group_rows = sizes.o_per_norm_group;
  config.of_block = group_rows % kRows == 0   ? 1
                    : kRows % group_rows == 0 ? static_cast<int>(kRows / group_rows)
                                              : static_cast<int>(std::min<int64_t>(kRows, kRows / group_rows + 2));
  return config;
}

// What the second pass does, or why it cannot.
std::optional<std::string> go_way(const Problem& p, const Sizes& sizes, Way way, Config& config) {
  const bool glu = has_post(p, CONVNORM_GLU), channels_last = p.layout == CONVNORM_NLC;
  config.way = way;
  if (way == Way::kRecompute) {
    if (glu) return "post=glu: the two halves of the channels lie in different tiles";
    if (channels_last) return "layout=nlc: tiles are stored channels first";
    if (p.dtype == CONVNORM_F32) return "dtype=f32: z lies in y, and reading it takes less than convolving again";
  } else {
    config.in_place = p.dtype == CONVNORM_F32 && !glu && !channels_last;
    // Rows of the workspace start on sectors.
    config.pitch = config.in_place ? sizes.l_out : quotient_up(sizes.l_out, 8) * 8;
    if (!config.in_place) config.tiles.staged = false;
  }
  config.at_once = 1;
  const int64_t limit = sizes.y_elements * element_size(p.dtype) + kWorkspaceAllowance;
  config.at_once = std::min(p.n, limit / workspace_plan(p, config).bytes);
  if (config.at_once == 0) return "one sample's z exceeds the workspace, which may be 64 MiB larger than y";
  return std::nullopt;
}

}  // namespace

WorkspacePlan workspace_plan(const Problem& p, const Config& config) {
  WorkspacePlan plan{};
  const auto take = [&](int64_t& region, int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    region = plan.bytes;
    plan.bytes += quotient_up(bytes, kAlignment) * kAlignment;
  };
  const int64_t at_once = config.at_once;
  take(plan.z,
       config.way == Way::kStore && !config.in_place ? at_once * p.o * config.pitch * int64_t{sizeof(float)} : 0);
  take(plan.pieces,
       at_once * config.segments * config.blocks * config.of_block * int64_t{sizeof(any_arch::SegmentMoments)});
  take(plan.norms, at_once * p.groups * int64_t{sizeof(any_arch::Norm)});
  return plan;
}

double estimated_us(const Problem& p, const Sizes& sizes, const DeviceLimits& device, const Config& config) {
  // Measured on an H200; an SM's cycles: of a m64n128k16 product; for eight channels of a position of x, of 32 and of
  // 16 bits, by seven loader warps; from a block's last product to its last store; until the first product of a launch.
  constexpr double kProductCycles = 66, kWideItemCycles = 6.5, kNarrowItemCycles = 4.3, kEpilogueCycles = 3000,
                   kFirstCycles = 12000;
  constexpr double kPairLoads = 1.3;                      // with fewer loader warps
  constexpr double kClockGhz = 1.7;                       // under load
  constexpr double kBytesPerUs = 3.3e6;                   // to and from memory
  constexpr double kFixedUs = 8.5, kUsPerSegment = 2e-3;  // launches; the merge of a group's segments
  constexpr double kAgain = 1.4;                          // a pass that also writes y
  constexpr double kFewChannels = 1.5;                    // rows of which nearly all channels are padding
  const sm90_onchip::Config c = tiles_of(config, config.at_once, device.sm_count);
  const double products = double(p.k) * c.chunks * c.chunk_k16 * c.parts * (c.parts + 1) / 2;
  const double math = products * c.warpgroups * kProductCycles;
  const double items = 2.0 * c.chunks * c.chunk_k16 * c.rows();
  double loads = items * (p.dtype == CONVNORM_F32 ? kWideItemCycles : kNarrowItemCycles);
  if (config.width == Width::kPair) loads *= kPairLoads;
  const double padding = p.c < 4 ? kFewChannels : 1;
  double tile = std::max(math, loads), rounds = c.iterations;
  if (config.width == Width::kPair) {
    tile = std::max(tile, (math + kEpilogueCycles) / 2);
    rounds *= 2;
  } else {
    tile += c.staggered ? kEpilogueCycles / c.warpgroups : kEpilogueCycles;
  }
  const double convolution = (kFirstCycles + rounds * tile * padding) * 1e-3 / kClockGhz;
  const double bytes =
      4.0 * static_cast<double>(sizes.z_elements) + static_cast<double>(sizes.y_elements * element_size(p.dtype));
  const auto waves = static_cast<double>(quotient_up(p.n, config.at_once));
  return waves * (kFixedUs + kUsPerSegment * static_cast<double>(config.segments) + convolution) +
         (config.way == Way::kStore ? bytes / kBytesPerUs : waves * kAgain * convolution);
}

std::variant<Config, std::string> choose_config(const Problem& p, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes) {
  if (!has_norm(p)) return "g=0: without a norm there is nothing to come back for";
  std::optional<Config> best;
  double best_us = 0;
  std::string reason;  // the first
  const auto refuse = [&](std::string why) {
    if (reason.empty()) reason = std::move(why);
  };
  for (const Shape& shape : kShapes) {
    if (wishes.width && *wishes.width != shape.width) continue;
    auto answer = with_tiles(p, sizes, device, shape);
    if (auto* why = std::get_if<std::string>(&answer)) {
      refuse(std::move(*why));
      continue;
    }
    for (const Way way : {Way::kStore, Way::kRecompute}) {
      if (wishes.way && *wishes.way != way) continue;
      auto config = std::get<Config>(answer);
      if (auto why = go_way(p, sizes, way, config)) {
        refuse(std::move(*why));
        continue;
      }
      const double us = estimated_us(p, sizes, device, config);
      if (!best || us < best_us) best = config, best_us = us;
    }
  }
  if (best) return *best;
  return reason.empty() ? "there is no instance of the tiles that were asked for" : reason;
}

}  // namespace convnorm::cuda::sm90_two_pass
