#include "kernels/cuda/sm80_onchip/plan.hpp"

#include <algorithm>
#include <optional>

#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::sm80_onchip {

namespace {

// Fitted to measurements on an H200, 2026-11-30: all layers of bench/shapes/layers.txt that it takes.
constexpr double kProductFlops = 2.0 * 16 * 8 * 16;  // of one mma.sync.m16n8k16
constexpr double kHopperShare = 0.5;                 // of what wgmma reaches there
constexpr double kWeightBytesPerCycle = 24;          // out of the second-level cache, an SM's share
constexpr double kStepCycles = 100;                  // of a warp, beside its products
constexpr double kPlainItemCycles = 250;             // eight channels of a row of x that is the next element
constexpr double kItemCycles = 550;                  // of any other row
constexpr double kWarpEpilogueCycles = 20'000;       // and the first x, norm, store
constexpr double kBlockEpilogueCycles = 19'000;
constexpr double kExchangeCycles = 20'000;  // between blocks: its code is fetched for the first time
constexpr double kPreOpCycles = 12'000;
constexpr double kChannelsLastCycles = 15'000;

std::string text(int64_t value) { return std::to_string(value); }

// What no tile can mend.
std::optional<std::string> refusal(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major < 8) return "needs asynchronous code of compute capability 8.0; this is " + device.architecture();
  return refuse_on_chip(p, sizes, true);
}

std::variant<Config, std::string> configure(const Problem& p, const Sizes& sizes, const DeviceLimits& device,
                                            int columns) {
  Config c{};
  c.parts = parts_of(p);
  const bool f32 = p.dtype == CONVNORM_F32;
  if (!has_columns(f32, c.parts, columns)) return "there is no instance of " + text(columns) + " columns";
  c.tile_columns = columns;
  c.warpgroups = kRowTiles;
  constexpr int kTileRows = kBlockRows * kRowTiles;
  if (p.conv_groups > 1 && sizes.o_per_conv_group % kTileRows != 0) {
    return "cg=" + text(p.conv_groups) + " leaves groups of " + text(sizes.o_per_conv_group) +
           " output channels, which are no whole tiles of " + text(kTileRows);
  }
  if (has_post(p, CONVNORM_GLU) && (p.conv_groups > 1 || p.o % kTileRows != 0)) {
    return p.conv_groups > 1
               ? "post=glu with cg=" + text(p.conv_groups) + ": values and gates read other channels of x"
               : "post=glu: half of " + text(p.o) + " channels are no whole blocks of " + text(kBlockRows);
  }
  const int element = static_cast<int>(element_size(p.dtype));
  std::string reason;
  // A large chunk of x leaves room for fewer CTAs, between which a problem is divided otherwise.
  for (c.ctas_per_sm = ctas_by_registers(columns); c.ctas_per_sm >= 1; --c.ctas_per_sm) {
    if (auto its = divide_into_tiles(p, sizes, c.ctas_per_sm * device.sm_count, c)) return *its;
    if (auto its = lay_out_rows(p, sizes, c, c)) return *its;
    c.by_warps = c.by_warps && !c.staged && !p.lengths && has_warps(f32, c.parts);
    c.plain_rows = c.plain_rows && !p.lengths;  // x_stream.cuh steps through them by one length
    c.conv_group_tiles = Divisor(static_cast<uint32_t>(c.row_tiles / p.conv_groups));
    c.chunk_k16 = chunk_k16_of(c.parts);
    c.chunks = static_cast<int>(quotient_up(sizes.c_per_conv_group, 16 * c.chunk_k16));
    c.slot_items = 2 * c.chunk_k16 * c.rows();
    c.rounds = static_cast<int>(quotient_up(c.slot_items, kThreads * items_of(c.parts)));
    int bytes = 0;
    for (c.weight_stages = 3; c.weight_stages >= 2; --c.weight_stages) {
      bytes = SharedPlan(c, element).bytes;
      if (bytes <= device.shared_per_block_optin && c.ctas_per_sm * (bytes + kReservedBytes) <= device.shared_per_sm) {
        return c;
      }
    }
    reason = "two chunks of x (" + text(c.rows()) + " rows each) take " + text(bytes) + " bytes of shared memory";
  }
  return reason;
}

}  // namespace

double estimated_cycles(const Problem& p, const Config& c, const DeviceLimits& device) {
  const double rate = device.peak_gflops(true) / (device.clock_ghz * device.sm_count);  // of an SM in a cycle
  const double flops_per_cycle = rate <= 0 ? 1024 : device.major == 9 ? rate * kHopperShare : rate;
  // Warps that share a quarter of an SM: one of each of its CTAs.
  const double sharing = quotient_up(c.ctas(), device.sm_count);
  const double products = double(products_of(c.parts)) * c.chunk_k16 * kRowTiles * (c.tile_columns / 8);
  const double math = products * kProductFlops / (flops_per_cycle / 4);
  const double items = double(c.rounds) * items_of(c.parts) / p.k;
  const double beside =
      (kStepCycles + items * (c.plain_rows ? kPlainItemCycles : kItemCycles)) * (c.samples > 1 ? 2 : 1);
  const double weights = sharing * c.chunk_k16 * c.parts * (4 * kRowTiles) * kStepVectors * 16 / kWeightBytesPerCycle;
  const double steps = double(p.k) * c.chunks;
  double rest = kWarpEpilogueCycles;
  if (!c.by_warps) {
    rest = kBlockEpilogueCycles + (c.exchanges() ? kExchangeCycles : 0) +
           (p.pre.op != CONVNORM_NONE ? kPreOpCycles : 0) + (p.layout == CONVNORM_NLC ? kChannelsLastCycles : 0);
  }
  return c.iterations * (rest + steps * std::max({sharing * math, math + beside, weights}));
}

std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes) {
  if (auto reason = refusal(problem, sizes, device)) return *reason;
  std::optional<Config> best;
  std::string reason;  // of the largest tile
  for (const int columns : {128, 64}) {
    if (wishes.tile_columns != 0 && wishes.tile_columns != columns) continue;
    const auto answer = configure(problem, sizes, device, columns);
    if (const auto* config = std::get_if<Config>(&answer)) {
      if (!best || estimated_cycles(problem, *config, device) < estimated_cycles(problem, *best, device)) {
        best = *config;
      }
    } else if (reason.empty()) {
      reason = std::get<std::string>(answer);
    }
  }
  if (best) return *best;
  if (reason.empty()) return "there is no instance of the tile that was asked for";
  return reason;
}

int64_t packed_elements(const Problem& problem, const Config& config) {
  return int64_t{config.blocks} * (kBlockRows / kWarpRows) * config.chunks * problem.k * config.chunk_k16 *
         config.parts * kStepVectors * 8;
}

}  // namespace convnorm::cuda::sm80_onchip
