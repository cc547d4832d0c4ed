#include "kernels/cuda/sm90_onchip/plan.hpp"

#include <algorithm>
#include <bit>

#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::sm90_onchip {

namespace {

// A weight stage of 24 KiB: streaming alone, stages of 8 KiB reach 28 bytes a clock and SM, 24 KiB 75.
constexpr int kStageBytes = 24 << 10;

// Of weights on their way from memory behind those on their way to shared memory.
constexpr int kAheadBytes = 128 << 10;

// Measured on an H200, per SM, all SMs busy.
constexpr double kWeightBytesPerCycle = 40;  // bulk copies out of the second-level cache
constexpr double kStoreBytesPerCycle = 18;   // y to memory
constexpr double kProductCycles128 = 66;     // wgmma m64n128k16 from shared memory
constexpr double kProductCycles64 = 42;      // m64n64k16: operands take 128 bytes a clock, all there are
constexpr double kBatchCycles = 330;  // a tap's products with a chunk, at least, where a warpgroup multiplies alone
constexpr double kSharedBytesPerCycle = 35;  // bulk copies where two share a block, and with it the rings
constexpr double kLoadItemCycles = 14;       // eight channels of a row of x, of several samples, by the loader warps
constexpr double kRowItemCycles = 6;         // the same of one sample, or in tiles of 64 columns
constexpr double kPlainItemCycles = 3;       // the same where rows are copied (x_loader.cuh)
constexpr double kNarrowItemCycles = 2;      // the same of 16 bits, by vectors, in tiles of 64 columns by warps
constexpr double kFixedCycles = 4000;        // launch, first x
// x arranged by a launch before: until the main one has its first chunk, and bytes of the whole GPU.
constexpr double kArrangeCycles = 1500, kArrangeBytesPerCycle = 2000;
constexpr double kReadCycles = 780;  // a word of another CTA, one after the other by a lane

// Words of other CTAs that a lane reads, one after the other, to know all groups of its warp or of its warpgroup.
double words_of_lane(const Config& c) {
  if (!c.exchanges()) return 0;
  if (c.by_warps) {
    const int64_t lanes = int64_t{1} << c.gather_lanes_log2, groups = kWarpRows >> c.piece_rows_log2;
    return static_cast<double>(quotient_up(groups * lanes, 32) * quotient_up(c.participants, lanes));
  }
  const int64_t group_rows = c.group_rows.value, groups = quotient_up(kBlockRows, group_rows) << c.samples_log2;
  const int64_t participants = quotient_up(group_rows, kBlockRows) * c.column_tiles, lanes = groups <= 4 ? 32 : 8;
  return static_cast<double>(quotient_up(groups * lanes, 128) * quotient_up(participants, lanes));
}

// What a tile takes beside that, in every round: moments, exchange and an epilogue under which little else runs.
double round_cycles(const Config& c) {
  const int blocks = c.warpgroups * c.tile_columns / 64;
  const double more_words = kReadCycles * std::max(words_of_lane(c) - 1, 0.0);
  if (!c.by_warps) return more_words + (c.tile_columns == 64 ? 11500 : 15000 + 1500.0 * blocks);
  // Narrow tiles read four words at a time. The more CTAs there are, the longer does each of them wait for code, and
  // for the last of the others.
  if (c.tile_columns == 64) return more_words / 4 + 6500 + 15.0 * c.ctas() + (c.staged ? 2500 : 0);
  return more_words + (c.staged ? 5500 + 1500.0 * blocks : 6500 + 200.0 * blocks);
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
  Candidate(const Problem& p, const Sizes& sizes, const DeviceLimits& device, int columns, int warpgroups,
            bool arranged, bool shared_blocks, const Wishes& wishes)
      : p_(p), sizes_(sizes), device_(device), wishes_(wishes) {
    c_.arranged = arranged;
    c_.shared_blocks = shared_blocks;
    c_.parts = parts_of(p);
    c_.tile_columns = columns;
    c_.warpgroups = warpgroups;
    c_.wide = warpgroups > 2;
  }

  std::variant<Config, std::string> configure() {
    const int least = least_by_warps(p_.dtype == CONVNORM_F32, c_.parts);
    if (auto reason = divide_into_tiles(p_, sizes_, device_.sm_count, c_, least)) return *reason;
    if (c_.tile_columns == kExtendedColumns) {
      if (!c_.by_warps) return "tiles of " + text(c_.tile_columns) + " columns are taken to y by warps only";
      c_.staged = true;
    }
    // Narrow tiles are taken where there is little to write: there vectors that share sectors with those of other CTAs
    // cost less than the way through shared memory.
    if (c_.tile_columns == 64 && c_.by_warps) c_.staged = sizes_.l_out * element_size(p_.dtype) % 16 != 0;
    if (auto reason = lay_out_rows(p_, sizes_, c_, c_)) return *reason;
    if (c_.arranged) {
      lay_out_arranged();
    } else {
      // Where rows are positions as they are, other copies have it easier.
      if (wishes_.raw_rows && !c_.wide && p_.stride > 1) lead_raw_rows(p_, c_);
    }
    if (auto reason = choose_rings()) return *reason;
    derive();
    if (c_.arranged) {
      if (auto reason = cannot_arrange()) return *reason;
    }
    if (c_.tile_columns == 64 && !c_.by_warps && !c_.staggered) c_.ahead_bytes = kAheadBytes;
    if (c_.shared_blocks) {
      if (auto reason = cannot_share()) return *reason;
    }
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
        const bool ring_first = c_.warpgroups == 1 && c_.chunks > 4 && !(c_.samples == 1 && leaves_weights(element));
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
    c_.plain_fill = c_.plain_rows && p_.pad_left <= c_.last_shift && p_.l * element_size(p_.dtype) % 4 == 0 &&
                    2 * c_.parts >= element_size(p_.dtype);
    c_.whole_samples = c_.samples > 1 && p_.stride == 1 && p_.pad == CONVNORM_ZEROS && !p_.lengths &&
                       p_.l == c_.tile_positions && p_.pad_left <= c_.last_shift &&
                       2 * c_.parts >= element_size(p_.dtype);
    c_.by_fours = c_.samples == 1 && !p_.lengths && std::has_single_bit(static_cast<uint64_t>(p_.stride));
    c_.fours_shift = static_cast<int>((4 - (p_.pad_left + c_.lead) % 4) % 4);
    c_.fours = Divisor(static_cast<uint32_t>(quotient_up(c_.phase_rows * p_.stride + c_.fours_shift, 4)));
    c_.beside = c_.last_shift + std::max(c_.tile_columns - 128, 0);
    c_.halo_rows = Divisor(static_cast<uint32_t>(std::max(c_.beside, 1)));
    c_.askers = std::max(1, c_.teams / static_cast<int>(c_.row_domains.value));
    c_.stage_step = c_.staggered ? 1 : c_.computing_warpgroups();
    // Halfway, so that one computes while the other waits for its next stage; but not before every stage whose slot the
    // next one will wait for is there: its barrier would be two phases behind, which looks like none. The last of those
    // stages is of the block before, the first may be of one before that: either must be among the `taken` ones that
    // its own warpgroup had waited for when it let the next one start.
    const int halfway = c_.chunks / 2, taken = (halfway + 1) * c_.tap_groups;
    const int of_block = c_.stages_per_block(), slots = c_.weight_slots;
    const int first = (of_block - slots % of_block) % of_block, last = 2 * of_block - slots - 1;
    c_.turn_chunk = first < taken && last < taken ? halfway : c_.chunks - 1;
    c_.block_slots = c_.stages_per_block() % c_.weight_slots;
    c_.block_parity = c_.stages_per_block() / c_.weight_slots % 2;
  }

  // One tile of columns has the same zeros beside x for all samples.
  void lay_out_arranged() {
    c_.arranged_row = 0, c_.arranged_rows = c_.rows();
    if (c_.column_tiles > 1 || p_.stride > 1 || p_.pad != CONVNORM_ZEROS) return;
    const int64_t positions = c_.rows() / c_.samples, first = std::min(p_.pad_left, positions - 1);
    c_.arranged_row = static_cast<int>(first) * c_.samples;
    c_.arranged_rows = static_cast<int>(std::min(p_.l, positions - first)) * c_.samples;
    const int all = c_.rows(), below = all - c_.arranged_row - c_.arranged_rows;
    const int rows = (c_.arranged_rows + std::max(c_.arranged_row, below) + 7) / 8 * 8;
    if (rows >= all) return;
    c_.slot_rows = Divisor(static_cast<uint32_t>(rows));
    c_.zeros_behind = all - rows;
  }

  std::optional<std::string> cannot_arrange() const {
    constexpr int kMostOfGrid = 65535;
    if (c_.tile_columns != 64 || c_.by_warps) return "tiles of more than 64 columns or by warps load x themselves";
    if (c_.row_tiles == 1 || c_.x_slots == c_.chunks) return "x is loaded once";
    if (p_.lengths) return "padded batches load x themselves";
    if (c_.sample_blocks > kMostOfGrid || c_.column_tiles > kMostOfGrid) return "more tiles than a grid has";
    if (c_.arranged_bytes() > sizes_.y_elements * element_size(p_.dtype) + kWorkspaceAllowance) {
      return "arranged, x takes " + text(c_.arranged_bytes()) + " bytes of workspace";
    }
    return std::nullopt;
  }

  // Of two warpgroups each has every second slot of both rings. It gives back a chunk's last stage and its x when its
  // next chunk has begun. Sums lie where nothing is copied any more.
  std::optional<std::string> cannot_share() const {
    if (!c_.arranged) return "warpgroups that share a block do not load x";
    if (c_.warpgroups != 1) return "tiles of 64 channels are shared";
    if (c_.iterations > 1) return "warpgroups that share a block compute one tile";
    if (c_.chunks < 2) return "there is one chunk";
    if (c_.stage_taps * c_.chunk_k16 * c_.parts * kStepBytes < c_.sums_bytes()) return "a stage is too small for sums";
    if (c_.x_slots < std::min(4, c_.chunks) || c_.weight_slots < 4) return "the rings are too short for two warpgroups";
    return std::nullopt;
  }

  int room(int element) const { return device_.shared_per_block_optin - SharedPlan(c_, element).bytes; }

  // All of x leaves room for as many weights as cover the latency of memory.
  bool leaves_weights(int element) {
    c_.x_slots = c_.chunks;
    c_.weight_slots = 0;
    return room(element) >= 96 << 10;
  }

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
      // Two warpgroups have every second slot each, and hold two chunks; what is left over holds more of those on their
      // way.
      if (c_.shared_blocks) {
        const int slot = SharedPlan(c_, element).x_slot_bytes + 16;
        c_.weight_slots -= c_.weight_slots % 2;
        c_.x_slots = std::min({c_.chunks, 6, c_.x_slots + std::max(room(element), 0) / slot});
        if (c_.x_slots < c_.chunks) c_.x_slots -= c_.x_slots % 2;
      }
      return true;
    }
    return false;
  }

  const Problem& p_;
  const Sizes& sizes_;
  const DeviceLimits& device_;
  const Wishes& wishes_;
  Config c_{};
};

}  // namespace

void lead_raw_rows(const Problem& p, Config& c) {
  const int64_t element = element_size(p.dtype);
  if (c.samples > 1 || p.lengths || !std::has_single_bit(static_cast<uint64_t>(p.stride)) || 2 * c.parts < element ||
      p.l * element % 4 != 0) {
    return;
  }
  const int64_t lead = quotient_up(p.pad_left, 4) * 4 - p.pad_left;
  const int64_t last_shift = (lead + (p.k - 1) * p.dilation) / p.stride, whole = std::max<int64_t>(1, 4 / p.stride);
  const int64_t phase_rows = quotient_up(c.tile_positions + last_shift, whole) * whole;
  const int64_t rows = quotient_up(phase_rows * p.stride, 8) * 8;
  if (rows > kMostRows) return;
  c.raw_rows = true;
  c.lead = static_cast<int>(lead);
  c.first_shift = static_cast<int>(lead / p.stride);
  c.first_phase = static_cast<int>(lead % p.stride);
  c.last_shift = static_cast<int>(last_shift);
  c.phase_rows = static_cast<int>(phase_rows);
  c.phase_row_divisor = Divisor(static_cast<uint32_t>(phase_rows));
  c.slot_rows = Divisor(static_cast<uint32_t>(rows));
}

double estimated_cycles(const Problem& p, const Config& c) {
  const double steps = double(p.k) * c.chunks * c.chunk_k16 * c.warpgroups;
  const double of_batch = c.chunk_k16 * products_of(c.parts) *
                          (c.tile_columns == 64 ? kProductCycles64 : kProductCycles128 * c.tile_columns / 128);
  const bool alone = c.computing_warpgroups() == 1 || (c.staggered && c.tile_columns == 64);
  const double math = steps / c.chunk_k16 * std::max(of_batch, alone ? kBatchCycles : 0);
  const double arranged = c.arranged ? double(c.chunks) * c.arranged_chunk_bytes() : 0;
  const double copies =
      (steps * c.parts * kStepBytes + arranged) / (c.shared_blocks ? kSharedBytesPerCycle : kWeightBytesPerCycle);
  // Tiles that need no refill are filled by all warps; else wide ones have half as many warps that load.
  const bool by_few = c.wide && (c.iterations > 1 || c.x_slots < c.chunks);
  const bool narrow_vectors = c.tile_columns == 64 && c.by_warps && p.dtype != CONVNORM_F32 && p.l % 8 == 0;
  const double item =
      c.plain_fill || c.whole_samples || c.raw_rows
          ? (narrow_vectors ? kNarrowItemCycles : kPlainItemCycles)
          : (c.samples == 1 || c.tile_columns == 64 ? kRowItemCycles : kLoadItemCycles) * (by_few ? 2 : 1);
  const double x = c.arranged ? 0 : 2.0 * c.chunks * c.chunk_k16 * c.rows() * item;
  const double store = double(kBlockRows) * c.warpgroups * c.tile_columns * element_size(p.dtype) / kStoreBytesPerCycle;
  const double tail = c.staggered ? store / c.warpgroups : store;
  const double before =
      c.arranged ? kArrangeCycles + static_cast<double>(c.arranged_bytes()) * 2 / kArrangeBytesPerCycle : 0;
  return kFixedCycles + before + c.iterations * (std::max({math, copies, x, store}) + round_cycles(c)) + tail +
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
      for (const auto& [arranged, shared] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
        if (wishes.arranged.value_or(arranged) != arranged) continue;
        if (wishes.shared_blocks.value_or(shared) != shared) continue;
        const auto answer =
            Candidate(problem, sizes, device, columns, warpgroups, arranged, shared, wishes).configure();
        if (const auto* config = std::get_if<Config>(&answer)) {
          if (!best || estimated_cycles(problem, *config) < estimated_cycles(problem, *best)) best = *config;
        } else if (reason.empty()) {
          reason = std::get<std::string>(answer);
        }
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
