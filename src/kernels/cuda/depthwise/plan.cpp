#include "kernels/cuda/depthwise/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "descriptor/text.hpp"
#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda::depthwise {

namespace {

constexpr int64_t kLongestRow = int64_t{1} << 30;  // positions and inputs of a row are counted in 32 bits

Walk choose_walk(const Problem& p) {
  if (p.stride != 1) return Walk::kScalars;
  if (p.dilation % kBlock == 0 && p.k > 1) return Walk::kSteps;
  if (p.dilation == 1 || p.k == 1) return Walk::kWindow;
  return p.dilation % 4 == 0 ? Walk::kVectors : Walk::kScalars;
}

// Inputs under a piece, behind those that let its outputs start on a sector, and what vectors read beyond the last.
int64_t row_elements(const Problem& p, const Sizes& sizes, int64_t piece) {
  constexpr int kBeyond = 8;
  const int64_t shift = kSectorBytes / element_size(p.dtype) - 1;
  return shift + (piece - 1) * p.stride + sizes.k_span + kBeyond;
}

// Cuts the work; with `resident`, for rows that stay with their warps, which is then told by the result.
std::variant<Config, std::string> cut(const Problem& p, const Sizes& sizes, const DeviceLimits& device, bool resident) {
  const int64_t rows = p.n * p.o, most_ctas = int64_t{kPerSm} * device.sm_count;
  const int bytes = std::min(device.shared_per_sm / kPerSm - kReservedBytes, device.shared_per_block_optin);
  const auto element = static_cast<int>(element_size(p.dtype));

  Config c{};
  c.walk = choose_walk(p);
  const auto shape = [&](int64_t pieces) {
    c.piece =
        static_cast<int>(pieces == 1 ? sizes.l_out : quotient_up(quotient_up(sizes.l_out, pieces), kBlock) * kBlock);
    c.pieces = quotient_up(sizes.l_out, c.piece);
    // A vector of outputs never ends behind the inputs of the next one.
    c.x_at = resident && element < 4 ? round_up(kSectorBytes / element + c.piece + 3, 8) : 0;
    // What 32 bits do not count fits nowhere, and is cut further.
    c.row_elements = static_cast<int>(std::min<int64_t>(c.x_at + row_elements(p, sizes, c.piece), INT32_MAX));
    c.domain_jobs = std::max<int64_t>(1, sizes.o_per_norm_group) * c.pieces;
  };
  c.domains = p.n * (has_norm(p) ? p.groups : p.o);
  // CTAs of a domain that occupy the GPU.
  const auto spread = [&] { return std::min(c.domain_jobs, most_ctas / std::min(c.domains, most_ctas)); };
  // How many jobs of this shape fit, beside the slots of so large a team.
  const auto fitting = [&](int64_t team) {
    const int64_t slots = int64_t{sizeof(Slot)} * (kWarps + (team > 1 ? team : 0)) + kHeadBytes + 32;
    const int64_t job =
        round_up(int64_t{c.row_elements} * element, 16) + 4 * round_up(p.k, 4) +
        int64_t{sizeof(Slot) + sizeof(uint64_t) + sizeof(RowMoments) + sizeof(Job) + sizeof(ChannelParameters)};
    return std::min<int64_t>(std::max<int64_t>(0, (bytes - slots) / job), kMostHeld);
  };
  // Half of the warps busy is enough; more pieces mean more inputs read twice.
  const int64_t blocks = quotient_up(sizes.l_out, kBlock);
  const int64_t wanted = std::clamp<int64_t>(quotient_up(most_ctas * kWarps / 2, rows), 1, blocks);
  shape(wanted);
  while (fitting(spread()) < kWarps && c.piece > kBlock) shape(c.pieces * 2);
  int64_t fit = fitting(spread());
  if (fit == 0) {
    return fmt::format("k={}, d={}, s={}: the {} inputs of a piece do not fit in {} bytes of shared memory", p.k,
                       p.dilation, p.stride, c.row_elements, bytes);
  }

  // As many CTAs a domain as keep it on chip, and as occupy the GPU.
  c.team = 1;
  if (has_norm(p)) {
    const int64_t on_chip = quotient_up(c.domain_jobs, fit);
    const int64_t team = std::min(std::max(on_chip, spread()), most_ctas);
    c.team = static_cast<int>(quotient_up(c.domain_jobs, quotient_up(c.domain_jobs, team)));
    fit = fitting(c.team);
    if (fit == 0) {
      return fmt::format(
          "{} CTAs that share a group leave no room for the {} inputs of a piece in {} bytes of shared memory", c.team,
          c.row_elements, bytes);
    }
  }
  c.domains_per_cta = 1;
  if (c.team == 1) {
    const int64_t most = std::max<int64_t>(1, fit / c.domain_jobs);
    c.domains_per_cta = static_cast<int>(std::min(most, quotient_up(c.domains, most_ctas)));
  }
  const int64_t sets = quotient_up(c.domains, c.domains_per_cta);
  c.teams = static_cast<int>(std::min(sets, most_ctas / c.team));
  const int64_t rounds = quotient_up(sets, c.teams);
  if (c.domains > UINT32_MAX / c.domain_jobs || rounds > INT32_MAX) {
    return std::string("there are too many rows for one launch");
  }
  c.inverse_piece = 1.0 / c.piece;
  c.by_team = WideDivisor(static_cast<uint32_t>(c.team));
  c.by_pieces = WideDivisor(static_cast<uint32_t>(c.pieces));
  c.by_domain_jobs = WideDivisor(static_cast<uint32_t>(c.domain_jobs));
  c.by_sample_domains = WideDivisor(static_cast<uint32_t>(has_norm(p) ? p.groups : p.o));
  c.by_multiplier = WideDivisor(static_cast<uint32_t>(sizes.o_per_conv_group));
  c.rounds = static_cast<int>(rounds);
  c.share = quotient_up(c.jobs_at_once(), c.team);
  c.held = static_cast<int>(std::min(c.share, fit));
  const int64_t batches = quotient_up(c.share, c.held);
  if (batches > INT32_MAX) return std::string("a group is too large for one launch");
  c.batches = static_cast<int>(batches);
  c.resident = resident;
  return c;
}

}  // namespace

std::variant<Config, std::string> choose_config(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  if (device.major < 8)
    return fmt::format("it is written for sm_80 and newer, and the device is {}", device.architecture());
  if (p.conv_groups != p.c)
    return fmt::format("cg={}: it takes one input channel per conv group, and c={}", p.conv_groups, p.c);
  if (p.c == 1 && p.o > 1) return std::string("c=1: all channels read the same row");
  if (p.layout != CONVNORM_NCL) return std::string("layout=nlc: it reads and writes NCL only");
  if (has_post(p, CONVNORM_GLU)) return std::string("post=glu: the two channels of a pair lie in different rows");
  if (p.n == 0) return std::string("n=0: there is nothing to compute");
  if (std::max(sizes.l_out, p.l) + p.pad_left + p.pad_right + sizes.k_span > kLongestRow || p.k > kLongestRow / 8) {
    return std::string("rows are too long for 32 bits");
  }
  const Walk walk = choose_walk(p);
  if (has_norm(p) && (walk == Walk::kSteps || walk == Walk::kVectors)) {
    const auto answer = cut(p, sizes, device, true);
    const auto* found = std::get_if<Config>(&answer);
    if (found != nullptr && found->batches == 1 && found->domains_per_cta == 1) {
      // Outputs are stored from where they lie in order, so lanes may take steps anywhere in a block; 16-bit inputs are
      // overtaken where blocks are not taken in order. Steps are written for few taps.
      Config c = *found;
      const auto vectors = static_cast<uint64_t>(std::min<int64_t>(p.dilation, kBlock) / 4);
      const bool in_order = p.dilation <= kBlock && std::has_single_bit(vectors);
      const bool steps = in_order || (walk == Walk::kSteps && p.dtype == CONVNORM_F32);
      c.walk = p.k == kFewTaps && steps ? Walk::kSteps : Walk::kVectors;
      c.lanes = c.walk == Walk::kSteps ? std::countr_zero(vectors) : 0;
      return c;
    }
  }
  return cut(p, sizes, device, false);
}

}  // namespace convnorm::cuda::depthwise
