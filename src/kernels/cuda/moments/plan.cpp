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
constexpr int64_t kLeastChunk = 16,
                  kMostChunk = 64;  // channels of a CTA, if groups are smaller
constexpr int64_t kCtasPerSm = 2;
constexpr int64_t kLeastSlice = 256;  // positions
constexpr int kManyColumns = 16;      // whose many squares want short slices
constexpr int kMostTile = 1024;
constexpr int kMostSlices = 48;                 // all of which every CTA of the second launch merges
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

// Of the last launch, in us; measured on an H200. Tiles take their instructions, those of 16 bits hold twice as many
// values, and with many positions what memory takes of them.
double result_us(const ResultConfig& r, const recompute::Config& stream, int64_t units, int64_t slots, int element) {
  constexpr double kLaunch = 3.5, kWindow = 2, kClass = 0.15;
  const double tile = element == 4 ? 1.1 : 1.85, positions = element == 4 ? 0.9 : 0.7;
  const auto rounds = static_cast<double>(quotient_up(units * r.sets * r.slices, slots));
  const auto classes = static_cast<double>(quotient_up(r.set_blocks, stream.class_blocks));
  return kLaunch +
         rounds * (kWindow + classes * kClass + r.set_blocks * (tile + positions * r.window / result_tile(element)));
}

// Windows, and sets of blocks, such that all CTAs end at about the same time.
void cut_result(const Problem& p, const Sizes& sizes, const DeviceLimits& device, Config& c) {
  const bool gelu = p.post_count == 1 && p.post[0].op == CONVNORM_GELU;
  const auto element = static_cast<int>(element_size(p.dtype));
  if (device.major != 9 || p.layout != CONVNORM_NCL || !gelu || c.stream.k16 != result_k16(element)) return;
  const int64_t units = p.n * p.conv_groups, slots = int64_t{kResultPerSm} * device.sm_count;
  const int64_t sector = recompute::kSectorBytes / element, tile = result_tile(element);
  const int64_t positions = sizes.l_out + sector - 1;  // rows may start anywhere in a sector
  const int64_t limit =
      std::min<int64_t>(device.shared_per_sm / kResultPerSm - kReservedBytes, device.shared_per_block_optin) -
      kResultPlaces;
  ResultConfig best{};
  double best_us = 0;
  for (int64_t sets = 1; sets <= c.stream.blocks(); sets *= 2) {
    const int64_t fewest = quotient_up(positions, tile);
    const int64_t rounds = quotient_up(units * sets * fewest, slots);
    const int64_t slices = std::max(fewest, rounds * slots / (units * sets));
    if (units * sets * slices > INT32_MAX) continue;
    const int64_t window = quotient_up(quotient_up(positions, slices), sector) * sector;
    c.result = {.window = static_cast<int>(window),
                .slices = static_cast<int>(quotient_up(positions, window)),
                .set_blocks = static_cast<int>(quotient_up(c.stream.blocks(), sets)),
                .sets = 0,
                .width = static_cast<int>(std::min<int64_t>(inputs_under(p, tile + sector), INT32_MAX / 256)),
                .apart = c.stream.classes * sizes.l_out,
                .block_apart = recompute::kBlockRows * c.stream.classes * sizes.l_out};
    c.result.sets = static_cast<int>(quotient_up(c.stream.blocks(), c.result.set_blocks));
    if (int64_t{c.result.width} * sizes.c_per_conv_group > limit / 4) continue;
    if (result_plan(c, sizes.c_per_conv_group, element).bytes > limit) continue;
    const double us = result_us(c.result, c.stream, units, slots, element);
    if (best_us > 0 && us >= best_us) continue;
    best_us = us, best = c.result;
  }
  // Tiles of many short rows are mostly empty.
  constexpr double kMostExcess = 1.25;
  const bool serves = best_us > 0 && best_us < kMostExcess * recompute::expected_us(without_norm(p), sizes, c.stream);
  c.result = serves ? best : ResultConfig{};
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
  // Every CTA merges all slices of its sample: as many CTAs as there are SMs.
  int64_t chunk = kLeastChunk;
  while (chunk < kMostChunk && p.n * quotient_up(p.o, chunk) > device.sm_count) chunk *= 2;
  c.chunk_groups = static_cast<int>(std::clamp<int64_t>(chunk / sizes.o_per_norm_group, 1, p.groups));
  // Where channels are few, so is what a thread has to do, and fewer of them wait for each other.
  c.channel_threads = c.chunk_groups * sizes.o_per_norm_group <= 2 * kLeastChunk ? 256 : kMostChannelThreads;
  c.chunks = static_cast<int>(quotient_up(p.groups, c.chunk_groups));
  if (!cut_slices(p, sizes, device, c) || channels_bytes(c, sizes.o_per_norm_group) > device.shared_per_block_optin) {
    return fmt::format("s={}, d={}: the inputs of a window do not fit in shared memory", p.stride, p.dilation);
  }
  cut_result(p, sizes, device, c);
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

// The launches that take moments mostly wait for one another; then every CTA of the second reads all slices of its
// sample, and forms w' C w for as many channels at a time as it has half warps. Held against 40 problems on an H200.
double expected_us(const Problem& p, const Sizes& sizes, const Config& c, const DeviceLimits& device) {
  constexpr double kBeginUs = 7.5, kUsPerColumn = 0.1, kSumsPerUs = 3e3, kProductsPerUs = 6e6, kUsPerRow = 0.072;
  const int64_t units = p.n * p.conv_groups, slots = int64_t{kResultPerSm} * device.sm_count;
  const double columns = c.columns;
  const auto products = static_cast<double>(units * sizes.l_out) * columns * columns;
  const int64_t at_once = c.channel_threads / kLanesPerChannel;
  const auto rows = static_cast<double>(quotient_up(c.chunk_groups * sizes.o_per_norm_group, at_once) *
                                        quotient_up(c.columns, kLanesPerChannel) * c.columns);
  const double moments = kBeginUs + columns * kUsPerColumn + static_cast<double>(c.slices) * c.record() / kSumsPerUs +
                         products / kProductsPerUs + rows * kUsPerRow;
  if (c.result.window == 0) return moments + recompute::expected_us(without_norm(p), sizes, c.stream);
  return moments + result_us(c.result, c.stream, units, slots, static_cast<int>(element_size(p.dtype)));
}

}  // namespace convnorm::cuda::moments
