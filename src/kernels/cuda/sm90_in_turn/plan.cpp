#include "kernels/cuda/sm90_in_turn/plan.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/sm90_onchip/plan.hpp"

namespace convnorm::cuda::sm90_in_turn {

namespace {

constexpr int kTileRows = kBlocks * kBlockRows;
constexpr int kMostStepParts = 4;          // k16 steps of a chunk times parts: instances have no code for more
constexpr int kStageBytes = 24 << 10;      // of weights, at most, where more than one tap shares a stage
constexpr int kLeastRingBytes = 40 << 10;  // of weights on their way
// Of shared memory: the rest is for the first-level cache, out of which comes what is spilled.
constexpr int kMostSharedBytes = 195 << 10;

// Measured on an H200, per SM, all SMs busy.
constexpr double kProductCycles = 58;        // wgmma m64n112k16 from shared memory
constexpr double kSplitProductCycles = 70;   // the same beside x and weights of two parts on their way in
constexpr double kBatchCycles = 330;         // the products of a batch, at least
constexpr double kWeightBytesPerCycle = 40;  // bulk copies out of the second-level cache
constexpr double kMemoryBytesPerCycle = 18;  // x and y
constexpr double kFourCycles = 10;           // four inputs of eight channels, by four warps
constexpr double kSideBySideCycles = 15;     // the same where they become neighbours in shared memory
constexpr double kItemCycles = 6;            // an input of eight channels, item by item
// Of a tile, from its last product to its last store.
constexpr double kTailCycles = 17'000;     // moments, norm, rows
constexpr double kExchangeCycles = 6'000;  // and the words of other CTAs
constexpr double kOpCycles = 6'000;        // and each op
constexpr double kFixedCycles = 17'000;    // launch, first x
constexpr double kAloneFactor = 1.35;      // of tiles under which nobody multiplies; a guess, on the safe side
constexpr double kStageCycles = 300;       // of a stage that is one batch, between two of which a slot changes hands

std::string text(int64_t value) { return std::to_string(value); }

// What no number of tiles in a CTA can mend.
std::optional<std::string> refusal(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major != 9 || device.minor != 0) {
    return "needs wgmma of compute capability 9.0; this is " + device.architecture();
  }
  if (!has_norm(p)) return "g=0: nothing is waited for";
  if (p.conv_groups != 1) return "cg=" + text(p.conv_groups) + ": all channels share one product";
  if (has_post(p, CONVNORM_GLU)) return "post=glu: the two halves of the channels lie in different tiles";
  if (auto reason = refuse_on_chip(p, sizes, false)) return reason;
  if (p.lengths) return "lengths=1: all samples take as many tiles";
  if (p.k > kMostTaps) return "k=" + text(p.k) + ": a launch receives the rows of " + text(kMostTaps) + " taps";
  if (p.dtype == CONVNORM_F32 && parts_of(p) != 2) return "fp32 is taken in two parts, as precision=high asks for";
  const int64_t group_rows = sizes.o_per_norm_group;
  if (kTileRows % group_rows != 0 && group_rows % kTileRows != 0) {
    return "groups of " + text(group_rows) + " channels lie across tiles of " + text(kTileRows);
  }
  return std::nullopt;
}

// One number of tiles in a CTA and one size of chunks, or the reason why they do not fit.
class Candidate {
 public:
  Candidate(const Problem& p, const Sizes& sizes, const DeviceLimits& device, int held, int chunk_k16)
      : p_(p), sizes_(sizes), device_(device) {
    c_.held = held;
    c_.chunk_k16 = chunk_k16;
    c_.parts = parts_of(p);
    c_.tile_columns = kColumns;
    c_.warpgroups = kBlocks;
  }

  std::variant<Config, std::string> configure() {
    if (auto reason = divide()) return *reason;
    if (auto reason = lay_out_rows(p_, sizes_, c_, c_)) return *reason;
    sm90_onchip::lead_raw_rows(p_, c_);
    if (auto reason = choose_rings()) return *reason;
    c_.slot_items = 2 * c_.chunk_k16 * c_.rows();
    c_.fours = Divisor(static_cast<uint32_t>(quotient_up(int64_t{c_.phase_rows} * p_.stride, 4)));
    return c_;
  }

 private:
  std::optional<std::string> divide() {
    Problem without_pre = p_;  // which is applied before what warps have in common' epilogues
    without_pre.pre.op = CONVNORM_NONE;
    if (auto reason = divide_into_tiles(without_pre, sizes_, c_.held * device_.sm_count, c_, kColumns)) return reason;
    if (c_.samples > 1) return "l_out=" + text(sizes_.l_out) + ": short samples, several of which share a tile";
    if (!c_.by_warps) return "an op after the norm that reads a tensor";
    if (c_.row_tiles % c_.domain_row_tiles != 0) return "the last groups have fewer channels";
    c_.held = std::min(c_.held, c_.column_tiles);
    c_.domain_ctas = static_cast<int>(quotient_up(c_.column_tiles, c_.held));
    c_.team_ctas = c_.domain_ctas * c_.domain_row_tiles;
    if (c_.team_ctas > device_.sm_count) {
      return "a group's outputs take " + text(c_.team_ctas) + " CTAs, more than the " + text(device_.sm_count) + " SMs";
    }
    c_.teams = std::min(c_.domains, device_.sm_count / c_.team_ctas);
    c_.iterations = static_cast<int>(quotient_up(c_.domains, c_.teams));
    c_.teams = static_cast<int>(quotient_up(c_.domains, c_.iterations));
    if (c_.iterations == 1) return "every CTA has one domain, and nothing to multiply while it is exchanged and stored";
    const int group_rows = static_cast<int>(sizes_.o_per_norm_group);
    c_.tile_groups = std::max(1, kTileRows / group_rows);
    const int group_pieces = std::max(1, std::min(group_rows, kTileRows) / kWarpRows);
    c_.group_pieces_log2 = std::countr_zero(static_cast<unsigned>(group_pieces));
    c_.tile_pieces = c_.tile_groups * group_pieces;
    c_.members = c_.team_ctas;
    c_.member_columns = Divisor(static_cast<uint32_t>(c_.domain_ctas));
    // A warp reads as many at once as kMemberPlaces, behind the last group too.
    c_.words = c_.members > 1 ? kRounds * c_.teams * c_.tile_groups * c_.members + kMemberPlaces : 0;
    c_.participants = 1;  // warps publish nothing
    c_.staged = sizes_.l_out * element_size(p_.dtype) % 8 != 0;
    return std::nullopt;
  }

  std::optional<std::string> choose_rings() {
    const int steps = static_cast<int>(quotient_up(p_.c, 16)), element = static_cast<int>(element_size(p_.dtype));
    c_.chunks = static_cast<int>(quotient_up(steps, c_.chunk_k16));
    const int tap_bytes = kBlocks * c_.chunk_k16 * c_.parts * sm90_onchip::kStepBytes;
    const int room = std::min(device_.shared_per_block_optin, kMostSharedBytes) - SharedPlan(c_, element).bytes;
    const int slot = c_.parts * 2 * c_.chunk_k16 * c_.rows() * 16 + 16;
    const bool one_row_tile = c_.teams % static_cast<int>(c_.row_domains.value) == 0;
    // All weights stay, in stages of a chunk, or x has its next two chunks on their way under the products of one.
    c_.resident = one_row_tile && c_.chunks * (p_.k * tap_bytes + 8) + 3 * slot <= room;
    c_.stage_taps = c_.resident ? static_cast<int>(p_.k) : 1;
    for (int taps = 2; taps <= p_.k && !c_.resident; ++taps) {
      if (p_.k % taps == 0 && taps * tap_bytes <= kStageBytes) c_.stage_taps = taps;
    }
    c_.tap_groups = static_cast<int>(p_.k / c_.stage_taps);
    const int stages = c_.stages_per_block(), stage = c_.stage_taps * tap_bytes + 8;
    if (c_.resident) {
      c_.weight_slots = stages;
    } else {
      const int x_slots = 3 * slot + kLeastRingBytes <= room ? 3 : 2;
      c_.weight_slots = std::min((room - x_slots * slot) / stage, stages);
      if (c_.weight_slots < stages && (c_.weight_slots < 3 || c_.weight_slots * stage < kLeastRingBytes)) {
        return "two chunks of x (" + text(c_.rows()) + " rows each) and the weight ring do not fit in shared memory";
      }
    }
    c_.x_slots = std::min((room - c_.weight_slots * stage) / slot, 8);
    c_.weight_ring = Divisor(static_cast<uint32_t>(c_.weight_slots));
    c_.x_ring = Divisor(static_cast<uint32_t>(c_.x_slots));
    return std::nullopt;
  }

  const Problem& p_;
  const Sizes& sizes_;
  const DeviceLimits& device_;
  Config c_{};
};

}  // namespace

double estimated_cycles(const Problem& p, const Config& c) {
  const int batch_taps = c.parts > 1 || c.chunk_k16 == 4             ? 1
                         : c.chunk_k16 == 2 && c.stage_taps % 2 == 0 ? 2
                         : c.chunk_k16 == 1 && c.stage_taps % 4 == 0 ? 4
                                                                     : 1;
  const double products = double(batch_taps) * c.chunk_k16 * kBlocks * products_of(c.parts);
  const double batch = products * (c.parts > 1 ? kSplitProductCycles : kProductCycles);
  const double math = double(p.k) / batch_taps * c.chunks * std::max(batch, kBatchCycles);
  const double hands = c.stage_taps == batch_taps && !c.resident ? c.stages_per_block() * kStageCycles : 0;
  const double weights = c.resident ? 0
                                    : double(p.k) * c.chunks * c.chunk_k16 * kBlocks * c.parts *
                                          sm90_onchip::kStepBytes / kWeightBytesPerCycle;
  const double items = 2.0 * c.chunks * c.chunk_k16 * c.rows();
  const double x = c.raw_rows ? items / 4 * (p.stride < 4 ? kSideBySideCycles : kFourCycles) / (c.parts > 1 ? 1 : 2)
                              : items * kItemCycles;
  const double bytes =
      (double(p.c) * kColumns * p.stride + double(kTileRows) * kColumns) * element_size(p.dtype) / kMemoryBytesPerCycle;
  const double tile = std::max({math + hands, weights, x, bytes});
  const double tail = kTailCycles + (c.members > 1 ? kExchangeCycles : 0) + p.post_count * kOpCycles;
  // Between the first tiles of two domains: what the tensor cores take, or what a warpgroup does before it begins
  // another tile. Where a domain has two, the third warpgroup multiplies one more meanwhile; where it has three, nobody
  // does.
  const double period = c.held == 1   ? std::max(tile, (tile + tail) / kTurns)
                        : c.held == 2 ? std::max(2 * tile, tile + tail)
                                      : kAloneFactor * (3 * tile + tail);
  return kFixedCycles + c.held * tile + tail + (c.iterations - 1) * period;
}

std::variant<Config, std::string> choose_config(const Problem& problem, const Sizes& sizes, const DeviceLimits& device,
                                                const Wishes& wishes) {
  if (auto reason = refusal(problem, sizes, device)) return *reason;
  std::optional<Config> best;
  std::string reason = "there is no instance for the chunks that were asked for";
  // More than two tiles of a domain would leave nobody to multiply while it is waited for.
  for (const int held : {2, 1, 3}) {
    if (wishes.held != 0 && wishes.held != held) continue;
    for (int chunk_k16 = kMostStepParts / parts_of(problem); chunk_k16 >= 1; chunk_k16 /= 2) {
      if (wishes.chunk_k16 != 0 && wishes.chunk_k16 != chunk_k16) continue;
      const auto answer = Candidate(problem, sizes, device, held, chunk_k16).configure();
      if (const auto* config = std::get_if<Config>(&answer)) {
        if (!best || estimated_cycles(problem, *config) < estimated_cycles(problem, *best)) best = *config;
      } else {
        reason = std::get<std::string>(answer);
      }
    }
  }
  if (best) return *best;
  return reason;
}

}  // namespace convnorm::cuda::sm90_in_turn
