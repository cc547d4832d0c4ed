#include "kernels/cuda/sm90_stream/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "descriptor/text.hpp"
#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::sm90_stream {

namespace {

using Reason = std::string;

constexpr int kMostColumns = 8 * kMostTiles8;
constexpr int kFewestTileChannels = kTileRows / 2;  // below, most of the packed weight would be zeros

int log2_of(int64_t power) { return static_cast<int>(std::bit_width(static_cast<uint64_t>(power))) - 1; }
int64_t padded(int64_t extent) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent))); }
// Output channels of a tile: whole groups, or a whole part of one; 0 if there is no sensible number.
int channels_of_tile(int64_t group_channels) {
  if (group_channels == 0) return kTileRows;
  if (group_channels <= kTileRows) return static_cast<int>(kTileRows / group_channels * group_channels);
  for (int channels = kTileRows; channels >= kFewestTileChannels; --channels) {
    if (group_channels % channels == 0) return channels;
  }
  return 0;
}

// One reading of x serves all taps where these move it by whole positions and leave its length as it is.
int shifted_taps(const Problem& p, const Sizes& sizes) {
  const bool shifts = p.stride == 1 && p.dilation == 1 && p.pad == CONVNORM_ZEROS && sizes.l_out == p.l &&
                      p.pad_left == p.k / 2 && p.l > 0;
  return shifts && (p.k == 3 || p.k == 5) ? static_cast<int>(p.k) : 0;
}

// CTAs that run at the same time, one an SM. Clusters of more than two leave SMs of incomplete ones idle: of an H200's
// 132, clusters of 4 or 8 reach 120.
int resident(const DeviceLimits& device, int cluster) {
  const int usable = cluster > 2 ? device.sm_count * 10 / 11 : device.sm_count;
  return usable / cluster * cluster;
}

// The part that does not depend on how the input channels are cut; or why it cannot be.
std::variant<Config, Reason> common(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major != 9) return fmt::format("it is written for sm_90, and the device is {}", device.architecture());
  if (p.conv_groups != 1) return fmt::format("cg={}: output channels do not share their inputs", p.conv_groups);
  if (p.layout != CONVNORM_NCL) return Reason("layout=nlc: it reads and writes NCL only");
  if (p.lengths != 0) return Reason("lengths=1: it takes all samples as whole");
  if (has_post(p, CONVNORM_GLU)) return Reason("post=glu: the two channels of a pair lie in different CTAs");
  const int64_t inputs = p.c * p.k;
  if (inputs < kFewestInputs) {
    return fmt::format("{} weights an output (limit {}): they are not what such a layer is bound by", inputs,
                       kFewestInputs);
  }
  if (p.n == 0) return Reason("n=0: there is nothing to compute");
  const int64_t longest = std::max<int64_t>(sizes.l_out, kPerLane);
  if (longest > kMostColumns) {
    return fmt::format("{} positions exceed the {} columns of a tile", sizes.l_out, kMostColumns);
  }
  const int64_t group_channels = has_norm(p) ? sizes.o_per_norm_group : 0;
  Config c{};
  c.tile_channels = channels_of_tile(group_channels);
  if (c.tile_channels == 0) {
    return fmt::format("groups of {} channels are no multiple of a number from {} to {}, the channels of a tile",
                       group_channels, kFewestTileChannels, kTileRows);
  }
  const int64_t tiles = quotient_up(p.o, c.tile_channels), blocks = quotient_up(p.c, kBlockInputs);
  // The kernel numbers elements of x and of y and vectors of the packed weight by 32 bits.
  constexpr int64_t kMost = int64_t{1} << 31;
  if (std::max(p.o, p.c) > kMost / (2 * kMostColumns) || p.k > (1 << 14) || p.o * p.c > kMost / (4 * p.k)) {
    return Reason("too many channels or taps");
  }
  for (const auto& [name, elements] : {std::pair{'x', p.c * p.l}, {'y', p.o * sizes.l_out}}) {
    if (elements > kMost / p.n) return fmt::format("{} has {} elements, more than 2^31", name, p.n * elements);
  }
  constexpr int64_t kMostReach = kMost / (4 * kMostColumns);  // of positions, and what a stride adds up to
  if (std::max({p.l, p.dilation, p.pad_left, p.pad_right, p.stride}) > kMostReach || p.dilation * p.k > kMostReach) {
    return Reason("too many positions under a filter");
  }
  const bool six = p.precision == CONVNORM_HIGHEST || inputs < kFewestInputsOfHalves;
  c.parts = p.dtype != CONVNORM_F32 ? 1 : six ? 3 : 2;
  c.taps = shifted_taps(p, sizes);
  c.positions_log2 = log2_of(padded(longest));
  c.tiles = static_cast<int>(tiles);
  c.blocks = static_cast<int>(blocks);
  return c;
}

// The columns, for tiles of `tile_samples` samples.
std::variant<Config, Reason> with_samples(Config c, const Problem& p, int tile_samples) {
  constexpr int64_t kMostSampleTiles = 65535;  // of a grid's third dimension
  const int columns = tile_samples << c.positions_log2, most = 8 * (c.parts == 3 ? kMostTiles8OfSix : kMostTiles8);
  if (columns > most) {
    return fmt::format("{} columns with {} products exceed {}", columns, c.products(), most);
  }
  const int64_t sample_tiles = quotient_up(p.n, tile_samples);
  if (sample_tiles > kMostSampleTiles) {
    return fmt::format("{} tiles of {} samples exceed {}", sample_tiles, tile_samples, kMostSampleTiles);
  }
  c.tiles8 = std::max(1, columns / 8);
  c.tile_samples = tile_samples;
  c.sample_tiles = static_cast<int>(sample_tiles);
  return c;
}

// The rest, for 2^k_slices_log2 CTAs a tile.
std::variant<Config, Reason> with_slices(Config c, const Problem& p, const Sizes& sizes, const DeviceLimits& device,
                                         int k_slices_log2, bool no_cluster) {
  c.k_slices_log2 = k_slices_log2;
  c.blocks_per_warp = static_cast<int>(quotient_up(c.blocks, int64_t{kWarps} << k_slices_log2));
  // As few units as keep a lane's positions within its registers, and at least one a CTA.
  c.slices_log2 = std::max({k_slices_log2, c.positions_log2 - 1 - log2_of(kPerLane), 0});
  c.row_tiles = c.tiles;
  c.cluster_tiles = 1;
  c.exchange = Exchange::kNone;
  c.group_rows = c.unit_rows();
  c.group_units = 1;
  if (has_norm(p)) {
    const int64_t group_channels = sizes.o_per_norm_group;
    if (group_channels >= c.tile_channels) {
      const int64_t group_tiles = group_channels / c.tile_channels;
      c.row_tiles = static_cast<int>(group_tiles);
      c.group_units = static_cast<int>(group_tiles << c.slices_log2);
      const bool one_cluster = group_tiles << k_slices_log2 <= kMostCluster && !no_cluster;
      if (c.group_units > 1) c.exchange = one_cluster ? Exchange::kCluster : Exchange::kWords;
      if (one_cluster) c.cluster_tiles = static_cast<int>(group_tiles);
    } else if (group_channels <= c.unit_rows() && (c.unit_rows() % group_channels == 0 || c.slices_log2 == 0)) {
      c.group_rows = static_cast<int>(group_channels);
    } else if (group_channels % c.unit_rows() == 0 && c.slices() % (group_channels / c.unit_rows()) == 0) {
      c.group_units = static_cast<int>(group_channels / c.unit_rows());
      c.exchange = Exchange::kCluster;
    } else {
      return fmt::format("groups of {} channels and units of {} do not divide each other", group_channels,
                         c.unit_rows());
    }
  }
  c.merging_lanes = static_cast<int>(std::min<int64_t>(padded(c.group_units), 32));
  c.even = c.tile_channels == kTileRows && c.merging_lanes == c.group_units;
  if (c.exchange == Exchange::kWords && c.grid() > resident(device, c.cluster())) {
    return fmt::format(
        "groups of {} channels are merged by {} CTAs that must all run at the same time, and the device "
        "holds {}",
        sizes.o_per_norm_group, c.grid(), resident(device, c.cluster()));
  }
  if (const int units = c.tile_samples << (c.slices_log2 - c.k_slices_log2); units > kWarps) {
    return fmt::format("a CTA would finish {} units with {} warps", units, kWarps);
  }
  constexpr int kMostRows = 65535;  // of a grid's second dimension
  if (c.tiles / c.row_tiles > kMostRows) {
    return fmt::format("{} rows of tiles exceed {}", c.tiles / c.row_tiles, kMostRows);
  }
  if (resident(device, c.cluster()) == 0) {
    return fmt::format("clusters of {} CTAs do not fit the device's {} SMs", c.cluster(), device.sm_count);
  }
  const int bytes = shared_plan(c).ring + kMostRingBytes;
  if (bytes > device.shared_per_block_optin) {
    return fmt::format("{} bytes exceed the {} of shared memory", bytes, device.shared_per_block_optin);
  }
  return c;
}

}  // namespace

std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes) {
  const auto begun = common(problem, sizes, device);
  if (const auto* reason = std::get_if<Reason>(&begun)) return *reason;
  const Config& c = std::get<Config>(begun);
  std::optional<Config> best;
  Reason reason = fmt::format(
      "{} samples and {} CTAs a tile were asked for; each must be 1, 2, 4 or 8, the samples below twice n={}",
      wishes.tile_samples, wishes.k_slices, problem.n);
  const auto consider = [&](std::variant<Config, Reason> answer) {
    if (auto* refused = std::get_if<Reason>(&answer)) {
      if (!best) reason = std::move(*refused);
    } else if (const Config& each = std::get<Config>(answer);
               !best || estimated_us(problem, each, device) < estimated_us(problem, *best, device)) {
      best = each;
    }
  };
  for (int samples = 1; samples <= kMostSamples && samples < 2 * problem.n; samples *= 2) {
    if (wishes.tile_samples != 0 && wishes.tile_samples != samples) continue;
    auto tiled = with_samples(c, problem, samples);
    if (std::holds_alternative<Reason>(tiled)) {
      consider(std::move(tiled));
      continue;
    }
    for (int log2 = 0; log2 <= 3; ++log2) {
      if (wishes.k_slices != 0 && wishes.k_slices != 1 << log2) continue;
      // Without clusters more CTAs run at the same time.
      for (const bool no_cluster : {false, true}) {
        if (wishes.no_cluster && !no_cluster) continue;
        consider(with_slices(std::get<Config>(tiled), problem, sizes, device, log2, no_cluster));
      }
    }
  }
  if (best) return *best;
  return reason;
}

double estimated_us(const Problem& problem, const Config& config, const DeviceLimits& device) {
  // Fitted to an H200: 1 to 84 MB of weights, 16 to 128 CTAs, 1 to 16 samples. Products overlap the weights by little;
  // shifting inputs, or loading them once per tap, takes as long again. All tiles of samples read the weights from the
  // second-level cache. What straight() and instances of so many stages gain was measured with 5 to 84 MB.
  constexpr double kUsOfTile8 = 0.12, kWordsUs = 1, kCutUs = 0.02;
  constexpr double kBytesPerUs = 4.25e6, kBytesPerUsOfCta = 1.3e5, kBytesPerUsOfCache = 7.8e6;
  constexpr double kProductsPerUs = 1100;
  const bool straight = has_norm(problem) && problem.pre.op == CONVNORM_NONE && config.straight(Sizes(problem).l_out);
  const bool in_line = straight && config.taps == 5 && config.whole(problem.c) &&
                       has_instance_of(config.blocks_per_warp, config.parts, config.tiles8);
  const double fixed = in_line ? 2.65 : straight ? 2.8 : 3.35, not_overlapped = in_line ? 0.3 : 0.8;
  const double bytes = 2.0 * static_cast<double>(packed_elements(problem, config));
  const double memory = std::max({bytes / kBytesPerUs, bytes * config.sample_tiles / kBytesPerUsOfCache,
                                  bytes / (config.tiles << config.k_slices_log2) / kBytesPerUsOfCta});
  const double products = static_cast<double>(config.blocks_per_warp) * kWarps * static_cast<double>(problem.k) *
                          config.products() * config.tiles8;  // of a CTA, by mma.sync
  const double compute = products / kProductsPerUs * (config.taps == 0 || config.tiles8 > 4 ? 2 : 1);
  const auto rounds = static_cast<double>(quotient_up(config.grid(), resident(device, config.cluster())));
  const double ends = fixed + kUsOfTile8 * config.tiles8;
  const double exchange = config.exchange == Exchange::kWords ? kWordsUs : 0;
  const double cut = config.k_slices_log2 > 0 ? kCutUs * (1 + config.k_slices_log2) : 0;
  return exchange + cut + rounds * (ends + std::max(memory, compute) + not_overlapped * std::min(memory, compute));
}

int64_t packed_elements(const Problem& problem, const Config& config) {
  return int64_t{config.tiles} * config.blocks * problem.k * config.vectors_of_tap() * 32 * 8;
}

}  // namespace convnorm::cuda::sm90_stream
