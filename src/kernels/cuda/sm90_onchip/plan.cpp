#include "kernels/cuda/sm90_onchip/plan.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "epilogue/ops.hpp"
#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::sm90_onchip {

namespace {

constexpr int kMostSamples = 16;
constexpr int kMostRows = (1 << 14) - 1;    // of an x slot: the K step of a descriptor has 14 bits
constexpr int64_t kMostChannels = 1 << 16;  // of y: as far as Divisor reaches
constexpr int64_t kMostPositions = int64_t{1} << 28;
// A weight stage of 24 KiB: streaming alone, stages of 8 KiB reach 28 bytes a clock and SM, 24 KiB 75.
constexpr int kStageBytes = 24 << 10;

// Measured on an H200, per SM, all SMs busy.
constexpr double kWeightBytesPerCycle = 40;  // bulk copies out of the second-level cache
constexpr double kStoreBytesPerCycle = 18;   // y to memory
constexpr double kProductCycles128 = 66;     // wgmma m64n128k16 from shared memory
constexpr double kProductCycles64 = 42;      // m64n64k16: operands take 128 bytes a clock, all there are
constexpr double kLoadItemCycles = 14;       // eight channels of a row of x, over all loader warps
constexpr double kFixedCycles = 4000;        // launch, first x, exchange

// Few products over strongly correlated inputs, as in raw audio, cancel far more than random ones: the error of two
// parts would grow past the contract, and a third costs little where so little is multiplied.
constexpr int64_t kRawSignalProducts = 64;

int parts_of(const Problem& p) {
  if (p.dtype != CONVNORM_F32 || p.precision == CONVNORM_MEDIUM) return 1;
  const bool raw_signal = p.c * p.k <= kRawSignalProducts;
  return p.precision == CONVNORM_HIGHEST || raw_signal ? 3 : 2;
}

int products_of(int parts) { return parts * (parts + 1) / 2; }

std::string text(int64_t value) { return std::to_string(value); }

// What no tile shape can mend.
std::optional<std::string> refusal(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major != 9 || device.minor != 0) {
    return "needs wgmma of compute capability 9.0; this is " + device.architecture();
  }
  if (p.layout != CONVNORM_NCL) return "layout=nlc: tensors are taken channels first";
  if (p.conv_groups != 1) return "cg=" + text(p.conv_groups) + ": all channels share one product";
  if (has_post(p, CONVNORM_GLU)) return "post=glu: the two halves of the channels lie in different tiles";
  if (p.n == 0 || sizes.l_out == 0 || p.l == 0) return "there is nothing to compute";
  if (sizes.l_out >= kMostPositions || p.l >= kMostPositions || p.n >= kMostPositions || p.o >= kMostChannels ||
      p.c >= kMostPositions || p.k >= kMostRows || p.stride >= kMostRows || p.dilation >= kMostPositions ||
      p.pad_left >= kMostPositions) {
    return "sizes exceed the kernel's 32-bit positions and 16-bit channels";
  }
  return std::nullopt;
}

// One tile shape with its rings, or the reason why it does not fit.
class Candidate {
 public:
  Candidate(const Problem& p, const Sizes& sizes, const DeviceLimits& device, int columns, int warpgroups)
      : p_(p), sizes_(sizes), device_(device) {
    c_.parts = parts_of(p);
    c_.tile_columns = columns;
    c_.warpgroups = warpgroups;
    c_.warpgroups_log2 = warpgroups == 4 ? 2 : warpgroups - 1;
    c_.wide = warpgroups > 2;
  }

  std::variant<Config, std::string> configure() {
    choose_columns();
    if (auto reason = choose_work()) return *reason;
    if (auto reason = choose_rings()) return *reason;
    derive();
    return c_;
  }

 private:
  void choose_columns() {
    c_.samples_log2 = 0;
    while (2 << c_.samples_log2 <= kMostSamples && (sizes_.l_out << (c_.samples_log2 + 1)) <= c_.tile_columns &&
           (1 << c_.samples_log2) < p_.n) {
      ++c_.samples_log2;
    }
    c_.samples = 1 << c_.samples_log2;
    c_.tile_positions = c_.tile_columns >> c_.samples_log2;
    c_.staged = c_.samples > 1 || sizes_.l_out * element_size(p_.dtype) % 32 != 0;
  }

  std::optional<std::string> choose_work() {
    const int tile_rows = kBlockRows * c_.warpgroups;
    const bool norm = has_norm(p_);
    const int group_rows = static_cast<int>(sizes_.o_per_norm_group);
    c_.row_tiles = static_cast<int>(quotient_up(p_.o, tile_rows));
    c_.blocks = c_.row_tiles * c_.warpgroups;
    c_.column_tiles = static_cast<int>(quotient_up(sizes_.l_out, c_.tile_positions));
    c_.sample_blocks = static_cast<int>(quotient_up(p_.n, c_.samples));
    c_.domain_column_tiles = norm ? c_.column_tiles : 1;
    c_.domain_row_tiles = norm ? std::min(group_rows / std::gcd(group_rows, tile_rows), c_.row_tiles) : 1;
    c_.row_domains = WideDivisor(static_cast<uint32_t>(quotient_up(c_.row_tiles, c_.domain_row_tiles)));
    const int64_t team = int64_t{c_.domain_row_tiles} * c_.domain_column_tiles;
    if (team > device_.sm_count) {
      return "a group's outputs take " + text(team) + " tiles of " + text(tile_rows) + " channels x " +
             text(c_.tile_columns) + " columns, more than the " + text(device_.sm_count) + " SMs";
    }
    const int64_t domains = int64_t{c_.row_domains.value} * (c_.column_tiles / c_.domain_column_tiles) * c_.sample_blocks;
    if (domains >= kMostPositions) return "sizes exceed 32-bit tile counts";
    c_.team_ctas = static_cast<int>(team);
    c_.domains = static_cast<int>(domains);
    c_.teams = static_cast<int>(std::min<int64_t>(domains, device_.sm_count / team));
    c_.iterations = static_cast<int>(quotient_up(domains, c_.teams));
    // Even out: no team has more than one domain less than another, so fewer teams may do as well.
    c_.teams = static_cast<int>(quotient_up(domains, c_.iterations));
    const bool crosses_blocks = norm && kBlockRows % group_rows != 0 && p_.o > kBlockRows;
    c_.words_per_warpgroup = 0;
    if (norm && (c_.column_tiles > 1 || crosses_blocks)) {
      c_.words_per_warpgroup = c_.samples == 1 ? std::min(kBlockRows, kBlockRows / group_rows + 2) : 2 * c_.samples;
    }
    choose_epilogue();
    return std::nullopt;
  }

  void choose_epilogue() {
    const int group_rows = static_cast<int>(sizes_.o_per_norm_group);
    const bool norm = has_norm(p_);
    // A warp takes 16 rows, the way wgmma deals them out.
    const bool whole_pieces = !norm || group_rows % kWarpRows == 0 || kWarpRows % group_rows == 0;
    const auto needs_no_tensor = [](const auto& stage) { return op_info(stage.op).kind == OpKind::pointwise; };
    c_.by_warps = c_.tile_columns == 128 && c_.samples == 1 && !c_.staged && !p_.lengths &&
                  p_.pre.op == CONVNORM_NONE && whole_pieces &&
                  std::all_of(p_.post, p_.post + p_.post_count, needs_no_tensor);
    c_.words = c_.words_per_warpgroup * c_.ctas() * c_.warpgroups;
    if (!c_.by_warps) return;
    c_.last_columns = static_cast<int>(sizes_.l_out - int64_t{c_.column_tiles - 1} * c_.tile_columns);
    if (!norm) return;
    c_.piece_rows_log2 = std::countr_zero(static_cast<unsigned>(std::min(group_rows, kWarpRows)));
    c_.group_pieces = std::max(1, group_rows / kWarpRows);
    c_.participants = c_.group_pieces * c_.column_tiles;
    c_.gather_lanes_log2 = std::min(5, static_cast<int>(std::bit_width(static_cast<unsigned>(c_.participants - 1))));
    const int64_t domain_rows = int64_t{c_.domain_row_tiles} * kBlockRows * c_.warpgroups;
    c_.domain_groups = static_cast<int>(quotient_up(domain_rows, group_rows));
    if (c_.participants > 1) c_.words = std::max(c_.words, c_.teams * c_.domain_groups * c_.participants);
  }

  std::optional<std::string> choose_rings() {
    c_.last_shift = static_cast<int>((p_.k - 1) * p_.dilation / p_.stride);
    const int64_t phase_rows = (int64_t{c_.tile_positions} + c_.last_shift) * c_.samples;
    const int64_t rows = (phase_rows * p_.stride + 7) / 8 * 8;
    if (rows > kMostRows) return "an x slot would have " + text(rows) + " rows, more than a descriptor can step over";
    c_.phase_rows = static_cast<int>(phase_rows);
    c_.slot_rows = Divisor(static_cast<uint32_t>(rows));
    c_.phase_row_divisor = Divisor(static_cast<uint32_t>(phase_rows));

    const int k16_steps = static_cast<int>(quotient_up(p_.c, 16));
    const int element = static_cast<int>(element_size(p_.dtype));
    // Chunks as large as leave room, and that pad few channels.
    for (int chunk_k16 = 4; chunk_k16 >= 1; chunk_k16 /= 2) {
      if (chunk_k16 > 1 && (k16_steps % chunk_k16 != 0 || chunk_k16 * c_.parts > 4)) continue;
      c_.chunk_k16 = chunk_k16;
      c_.chunks = static_cast<int>(quotient_up(k16_steps, chunk_k16));
      const int tap_bytes = chunk_k16 * c_.parts * kStepBytes;
      const int most_taps = std::max(1, kStageBytes / tap_bytes);
      c_.tap_groups = static_cast<int>(quotient_up(p_.k, most_taps));
      c_.stage_taps = static_cast<int>(quotient_up(p_.k, c_.tap_groups));
      c_.tap_groups = static_cast<int>(quotient_up(p_.k, c_.stage_taps));
      if (fit_resident(element) || fit_ring(element)) return std::nullopt;
    }
    return "two chunks of x (" + text(rows) + " rows each) and the weight ring do not fit in shared memory";
  }

  // What the kernel would otherwise have to divide for.
  void derive() {
    c_.slot_items = 2 * c_.chunk_k16 * c_.rows();
    c_.plain_rows = c_.samples == 1 && p_.stride == 1 && p_.pad == CONVNORM_ZEROS && !p_.lengths;
    // Copies are words at least; what is copied lies where its operands will, which must not be smaller.
    c_.plain_fill = c_.plain_rows && c_.tile_columns == 128 && p_.pad_left <= c_.last_shift &&
                    p_.l * element_size(p_.dtype) % 4 == 0 && 2 * c_.parts >= element_size(p_.dtype);
    c_.by_fours = c_.samples == 1 && !p_.lengths && std::has_single_bit(static_cast<uint64_t>(p_.stride));
    c_.fours_shift = static_cast<int>((4 - p_.pad_left % 4) % 4);
    c_.fours = Divisor(static_cast<uint32_t>(quotient_up(c_.phase_rows * p_.stride + c_.fours_shift, 4)));
    c_.halo_rows = Divisor(static_cast<uint32_t>(std::max(c_.last_shift, 1)));
    c_.tap_shift = static_cast<int>(p_.dilation / p_.stride) * c_.samples;
    c_.tap_phase = static_cast<int>(p_.dilation % p_.stride);
    c_.stage_step = c_.staggered ? 1 : c_.warpgroups;
    c_.block_slots = c_.stages_per_block() % c_.weight_slots;
    c_.block_parity = c_.stages_per_block() / c_.weight_slots % 2;
    c_.group_rows = Divisor(static_cast<uint32_t>(std::max<int64_t>(sizes_.o_per_norm_group, 1)));
    c_.column_tile_divisor = WideDivisor(static_cast<uint32_t>(c_.column_tiles));
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
  bool fit_ring(int element) {
    c_.staggered = false;
    const int stage = c_.stage_taps * c_.chunk_k16 * c_.parts * kStepBytes + 16;
    for (c_.x_slots = std::min(4, c_.chunks); c_.x_slots >= std::min(2, c_.chunks); --c_.x_slots) {
      c_.weight_slots = 0;
      const int rounds = room(element) / (stage * c_.warpgroups);
      const int wanted = c_.x_slots > 2 ? 4 : 2;
      if (rounds < 1 || (rounds < wanted && rounds * c_.warpgroups * stage < 96 << 10 && c_.x_slots > 2)) continue;
      // A stage is given back when the next one's first products have been issued: with one slot a warpgroup would wait
      // for a stage that waits for it.
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
  const double math = steps * products_of(c.parts) * (c.tile_columns == 128 ? kProductCycles128 : kProductCycles64);
  const double weights = steps * c.parts * kStepBytes / kWeightBytesPerCycle;
  const double x = 2.0 * c.chunks * c.chunk_k16 * c.rows() * kLoadItemCycles * (c.wide ? 2 : 1);
  const double store = double(kBlockRows) * c.warpgroups * c.tile_columns * element_size(p.dtype) / kStoreBytesPerCycle;
  const double tail = c.staggered ? store / c.warpgroups : store;
  return kFixedCycles + c.iterations * std::max({math, weights, x, store}) + tail +
         (c.staggered ? 0 : (c.iterations - 1) * store);
}

std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes) {
  if (auto reason = refusal(problem, sizes, device)) return *reason;
  std::optional<Config> best;
  std::string reason;  // of the largest tile
  for (const int columns : {128, 64}) {
    for (const int warpgroups : {4, 2, 1}) {
      if (columns == 64 && warpgroups == 4) continue;  // no such instance
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
