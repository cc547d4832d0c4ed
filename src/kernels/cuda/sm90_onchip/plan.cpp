#include "kernels/cuda/sm90_onchip/plan.hpp"

#include <algorithm>
#include <bit>

#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::sm90_onchip {

namespace {

// A weight stage of 24 KiB: streaming alone, stages of 8 KiB reach 28 bytes a clock and SM, 24 KiB 75.
constexpr int kStageBytes = 24 << 10;

// Measured on an H200, per SM, all SMs busy.
constexpr double kWeightBytesPerCycle = 40;  // bulk copies out of the second-level cache
constexpr double kStoreBytesPerCycle = 18;   // y to memory
constexpr double kProductCycles128 = 66;     // wgmma m64n128k16 from shared memory
constexpr double kProductCycles64 = 42;      // m64n64k16: operands take 128 bytes a clock, all there are
constexpr double kLoadItemCycles = 14;       // eight channels of a row of x, of several samples, by the loader warps
constexpr double kRowItemCycles = 6;         // the same of one sample, or in tiles of 64 columns
constexpr double kPlainItemCycles = 3;       // the same where rows are copied (x_loader.cuh)
constexpr double kFixedCycles = 4000;        // launch, first x

// What a tile takes beside that, in every round: moments, exchange and an epilogue under which little else runs.
double round_cycles(const Config& c) {
  const int blocks = c.warpgroups * c.tile_columns / 64;
  if (!c.by_warps) return c.tile_columns == 64 ? 11500 : 15000 + 1500.0 * blocks;
  return c.staged ? 5500 + 1500.0 * blocks : 6500 + 200.0 * blocks;
}

std::string text(int64_t value) { return std::to_string(value); }

// Tiles of 136 columns are for what is little more than a number of 128s: four warpgroups, whose rows go to y by warps
// and through shared memory, since not all of them start on sectors.
constexpr int kExtendedColumns = 136;

bool has_instance(const Problem& p, int columns, int warpgroups) {
  const bool wide = warpgroups == 4;
  if ((columns == 64 && wide) || (columns == kExtendedColumns && !wide)) return false;
  return has_columns(p.dtype == CONVNORM_F32, parts_of(p), columns);
}

// What no tile shape can mend.
std::optional<std::string> refusal(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major != 9 || device.minor != 0) {
    return "needs wgmma of compute capability 9.0; this is " + device.architecture();
  }
  if (p.conv_groups != 1) return "cg=" + text(p.conv_groups) + ": all channels share one product";
  if (has_post(p, CONVNORM_GLU)) return "post=glu: the two halves of the channels lie in different tiles";
  return refuse_on_chip(p, sizes, false);
}

// One tile shape with its rings, or the reason why it does not fit.
class Candidate {
 public:
  Candidate(const Problem& p, const Sizes& sizes, const DeviceLimits& device, int columns, int warpgroups)
      : p_(p), sizes_(sizes), device_(device) {
    c_.parts = parts_of(p);
    c_.tile_columns = columns;
    c_.warpgroups = warpgroups;
    c_.wide = warpgroups > 2;
  }

  std::variant<Config, std::string> configure() {
    if (auto reason = divide_into_tiles(p_, sizes_, device_.sm_count, c_)) return *reason;
    if (c_.tile_columns == kExtendedColumns) {
      if (!c_.by_warps) return "tiles of " + text(c_.tile_columns) + " columns are taken to y by warps only";
      c_.staged = true;
    }
    if (auto reason = lay_out_rows(p_, sizes_, c_, c_)) return *reason;
    if (auto reason = choose_rings()) return *reason;
    derive();
    return c_;
  }

 private:
  std::optional<std::string> choose_rings() {
    // Half a stage is better than two slots of x, which leave the loaders no time but that of one chunk's products.
    if (fit_rings(kStageBytes / 2, largest_chunk_k16(), 3) || fit_rings(0, 1, 2)) return std::nullopt;
    return "two chunks of x (" + text(c_.rows()) + " rows each) and the weight ring do not fit in shared memory";
  }

  int k16_steps() const { return static_cast<int>(quotient_up(p_.c, 16)); }

  // Of those that pad few channels.
  int largest_chunk_k16() const {
    int chunk_k16 = 4;
    while (chunk_k16 > 1 && (k16_steps() % chunk_k16 != 0 || chunk_k16 * c_.parts > kMostStepParts)) chunk_k16 /= 2;
    return chunk_k16;
  }

  // Smaller stages only where larger ones do not fit. Chunks as large as leave room.
  bool fit_rings(int least_stage_bytes, int least_chunk_k16, int least_x_slots) {
    const int element = static_cast<int>(element_size(p_.dtype));
    const int least_bytes = std::max(least_stage_bytes, c_.parts * kStepBytes);
    for (int stage_bytes = kStageBytes; stage_bytes >= least_bytes; stage_bytes /= 2) {
      for (int chunk_k16 = largest_chunk_k16(); chunk_k16 >= least_chunk_k16; chunk_k16 /= 2) {
        c_.chunk_k16 = chunk_k16;
        c_.chunks = static_cast<int>(quotient_up(k16_steps(), chunk_k16));
        const int tap_bytes = chunk_k16 * c_.parts * kStepBytes;
        const int most_taps = std::max(1, stage_bytes / tap_bytes);
        c_.tap_groups = static_cast<int>(quotient_up(p_.k, most_taps));
        c_.stage_taps = static_cast<int>(quotient_up(p_.k, c_.tap_groups));
        c_.tap_groups = static_cast<int>(quotient_up(p_.k, c_.stage_taps));
        // A single warpgroup takes each chunk of x once: what x does not hold is better spent on weights.
        const bool ring_first = c_.warpgroups == 1 && c_.chunks > 4;
        const bool fits = ring_first ? fit_ring(element, least_x_slots) || fit_resident(element)
                                     : fit_resident(element) || fit_ring(element, least_x_slots);
        if (fits) return true;
      }
    }
    return false;
  }

  // What the kernel would otherwise have to divide for.
  void derive() {
    c_.slot_items = 2 * c_.chunk_k16 * c_.rows();
    // Copies are words at least; what is copied lies where its operands will, which must not be smaller.
    c_.plain_fill = c_.plain_rows && c_.tile_columns >= 128 && p_.pad_left <= c_.last_shift &&
                    p_.l * element_size(p_.dtype) % 4 == 0 && 2 * c_.parts >= element_size(p_.dtype);
    c_.whole_samples = c_.samples > 1 && p_.stride == 1 && p_.pad == CONVNORM_ZEROS && !p_.lengths &&
                       p_.l == c_.tile_positions && p_.pad_left <= c_.last_shift &&
                       2 * c_.parts >= element_size(p_.dtype);
    c_.by_fours = c_.samples == 1 && !p_.lengths && std::has_single_bit(static_cast<uint64_t>(p_.stride));
    c_.fours_shift = static_cast<int>((4 - p_.pad_left % 4) % 4);
    c_.fours = Divisor(static_cast<uint32_t>(quotient_up(c_.phase_rows * p_.stride + c_.fours_shift, 4)));
    c_.beside = c_.last_shift + std::max(c_.tile_columns - 128, 0);
    c_.halo_rows = Divisor(static_cast<uint32_t>(std::max(c_.beside, 1)));
    c_.stage_step = c_.staggered ? 1 : c_.warpgroups;
    // Halfway, so that one computes while the other waits for its next stage; but not before every stage whose slot the
    // next one will wait for is there: its barrier would be two phases behind, which looks like none. The last of those
    // stages is of the block before, the first may be of one before that: either must be among the `taken` ones that its
    // own warpgroup had waited for when it let the next one start.
    const int halfway = c_.chunks / 2, taken = (halfway + 1) * c_.tap_groups;
    const int of_block = c_.stages_per_block(), slots = c_.weight_slots;
    const int first = (of_block - slots % of_block) % of_block, last = 2 * of_block - slots - 1;
    c_.turn_chunk = first < taken && last < taken ? halfway : c_.chunks - 1;
    c_.block_slots = c_.stages_per_block() % c_.weight_slots;
    c_.block_parity = c_.stages_per_block() / c_.weight_slots % 2;
  }

  int room(int element) const { return device_.shared_per_block_optin - SharedPlan(c_, element).bytes; }

  // x stays, warpgroups take turns.
  bool fit_resident(int element) {
    c_.x_slots = c_.chunks;
    c_.weight_slots = 0;
    const int stage = c_.stage_taps * c_.chunk_k16 * c_.parts * kStepBytes + 16;
    const int slots = std::min(room(element) / stage, c_.warpgroups * c_.stages_per_block());
    // Two small stages do not cover the latency of the cache.
    if (slots < 1 || (slots < c_.warpgroups * c_.stages_per_block() && slots * stage < 40 << 10)) return false;
    c_.weight_slots = std::min(slots, 16);
    c_.staggered = c_.warpgroups > 1;
    return true;
  }

  // x comes in chunks, which all warpgroups take side by side.
  bool fit_ring(int element, int least_x_slots) {
    c_.staggered = false;
    const int stage = c_.stage_taps * c_.chunk_k16 * c_.parts * kStepBytes + 16;
    for (c_.x_slots = std::min(4, c_.chunks); c_.x_slots >= std::min(least_x_slots, c_.chunks); --c_.x_slots) {
      c_.weight_slots = 0;
      const int rounds = room(element) / (stage * c_.warpgroups);
      const int wanted = c_.x_slots > 2 ? 4 : 2;
      if (rounds < 1 || (rounds < wanted && rounds * c_.warpgroups * stage < 96 << 10 && c_.x_slots > 2)) continue;
      // A stage is given back when products of the next one have been issued: with one slot a warpgroup would wait for
      // a stage that waits for it.
      if (rounds < 2) continue;
      c_.weight_slots = std::min(rounds, 8) * c_.warpgroups;
      return true;
    }
    return false;
  }

  const Problem& p_;
  const Sizes& sizes_;
  const DeviceLimits& device_;
  Config c_{};
};

}  // namespace

double estimated_cycles(const Problem& p, const Config& c) {
  const double steps = double(p.k) * c.chunks * c.chunk_k16 * c.warpgroups;
  const double math = steps * products_of(c.parts) *
                      (c.tile_columns == 64 ? kProductCycles64 : kProductCycles128 * c.tile_columns / 128);
  const double weights = steps * c.parts * kStepBytes / kWeightBytesPerCycle;
  // Tiles that need no refill are filled by all warps; else wide ones have half as many warps that load.
  const bool by_few = c.wide && (c.iterations > 1 || c.x_slots < c.chunks);
  const double item =
      c.plain_fill || c.whole_samples
          ? kPlainItemCycles
          : (c.samples == 1 || c.tile_columns == 64 ? kRowItemCycles : kLoadItemCycles) * (by_few ? 2 : 1);
  const double x = 2.0 * c.chunks * c.chunk_k16 * c.rows() * item;
  const double store = double(kBlockRows) * c.warpgroups * c.tile_columns * element_size(p.dtype) / kStoreBytesPerCycle;
  const double tail = c.staggered ? store / c.warpgroups : store;
  return kFixedCycles + c.iterations * (std::max({math, weights, x, store}) + round_cycles(c)) + tail +
         (c.staggered ? 0 : (c.iterations - 1) * store);
}

std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes) {
  if (auto reason = refusal(problem, sizes, device)) return *reason;
  std::optional<Config> best;
  std::string reason;  // of the largest tile
  for (const int columns : {128, kExtendedColumns, 64}) {
    for (const int warpgroups : {4, 2, 1}) {
      if (!has_instance(problem, columns, warpgroups)) continue;
      if (wishes.tile_columns != 0 && wishes.tile_columns != columns) continue;
      if (wishes.warpgroups != 0 && wishes.warpgroups != warpgroups) continue;
      const auto answer = Candidate(problem, sizes, device, columns, warpgroups).configure();
      if (const auto* config = std::get_if<Config>(&answer)) {
        if (!best || estimated_cycles(problem, *config) < estimated_cycles(problem, *best)) best = *config;
      } else if (reason.empty()) {
        reason = std::get<std::string>(answer);
      }
    }
  }
  if (best) return *best;
  if (reason.empty()) return "there is no instance of the tile that was asked for";
  return reason;
}

int64_t packed_elements(const Problem& problem, const Config& config) {
  return int64_t{config.blocks} * config.chunks * problem.k * config.chunk_k16 * config.parts * (kStepBytes / 2);
}

}  // namespace convnorm::cuda::sm90_onchip
