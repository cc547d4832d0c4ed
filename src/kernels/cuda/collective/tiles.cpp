#include "kernels/cuda/collective/tiles.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "epilogue/ops.hpp"
#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda {

namespace {

constexpr int kMostSamples = 16;
constexpr int64_t kMostChannels = 1 << 16;  // of y: as far as Divisor reaches
constexpr int64_t kMostPositions = int64_t{1} << 28;

// Few products over strongly correlated inputs, as in raw audio, cancel far more than random ones: the error of two
// parts would grow past the contract, and a third costs little where so little is multiplied.
constexpr int64_t kRawSignalProducts = 64;

std::string text(int64_t value) { return std::to_string(value); }

// Bytes of shared memory that StagedRows of store.cuh takes for a warp. One sample: 8 rows of 32 columns and a sector.
// Several: 8 rows of all columns, and for each sample a sector and the rounding up to a whole vector.
int warp_staging_bytes(int element_bytes, int tile_columns, int samples) {
  return samples == 1 ? 8 * (32 * element_bytes + 32) : 8 * tile_columns * element_bytes + samples * (32 + 16);
}

void choose_epilogue(const Problem& p, const Sizes& sizes, int least_by_warps, Tiles& t) {
  const int group_rows = static_cast<int>(sizes.o_per_norm_group);
  const bool norm = has_norm(p);
  // A warp takes 16 rows, the way the tensor cores deal them out.
  const bool whole_pieces = !norm || group_rows % kWarpRows == 0 || kWarpRows % group_rows == 0;
  const auto needs_no_tensor = [](const auto& stage) { return op_info(stage.op).kind == OpKind::pointwise; };
  t.by_warps = t.tile_columns >= least_by_warps && t.samples == 1 && p.layout == CONVNORM_NCL &&
               p.pre.op == CONVNORM_NONE && whole_pieces && std::all_of(p.post, p.post + p.post_count, needs_no_tensor);
  t.lane_rows = p.layout == CONVNORM_NCL && sizes.l_out == t.tile_positions && !t.halves &&
                (t.tile_columns == 128 ? t.samples == 16 : t.samples == 4 || t.samples == 8) &&
                std::all_of(p.post, p.post + p.post_count, needs_no_tensor);
  t.words = t.words_per_warpgroup * t.ctas() * t.warpgroups;
  if (!t.by_warps) return;
  t.last_columns = static_cast<int>(sizes.l_out - int64_t{t.column_tiles - 1} * t.tile_columns);
  if (!norm) return;
  t.piece_rows_log2 = std::countr_zero(static_cast<unsigned>(std::min(group_rows, kWarpRows)));
  t.group_pieces = std::max(1, group_rows / kWarpRows);
  t.participants = t.group_pieces * t.column_tiles;
  t.gather_lanes_log2 = std::min(5, static_cast<int>(std::bit_width(static_cast<unsigned>(t.participants - 1))));
  const int64_t domain_rows = int64_t{t.domain_row_tiles} * kBlockRows * t.warpgroups;
  t.domain_groups = static_cast<int>(quotient_up(domain_rows, group_rows));
  if (t.participants > 1) t.words = std::max(t.words, t.teams * t.domain_groups * t.participants);
}

// Tiles above one another that share groups.
int domain_row_tiles(const Problem& p, int group_rows, const Tiles& t) {
  if (t.halves && p.groups % 2 != 0) return t.row_tiles;  // a group has values and gates
  const int rows = t.halves ? kBlockRows : kBlockRows * t.warpgroups;
  return std::min(group_rows / std::gcd(group_rows, rows), t.row_tiles);
}

}  // namespace

int EpilogueRegions::lay_out(const Tiles& tiles, int warps, int element_bytes, int at) {
  statistics_bytes = kBlockRows * tiles.samples * 8;
  staging_bytes = tiles.staged ? warp_staging_bytes(element_bytes, tiles.tile_columns, tiles.samples) : 0;
  statistics = at;
  rows = statistics + tiles.warpgroups * statistics_bytes;
  tasks = rows + tiles.warpgroups * kBlockRows * 16;
  staging = tasks + tiles.warpgroups * 128 * 16;
  first_tag = staging + warps * staging_bytes;
  outputs = first_tag + 8;
  return outputs + 16 * tiles.warpgroups;
}

std::optional<std::string> divide_into_tiles(const Problem& p, const Sizes& sizes, int most_ctas, Tiles& t,
                                             int least_by_warps) {
  t.warpgroups_log2 = std::countr_zero(static_cast<unsigned>(t.warpgroups));
  t.samples_log2 = 0;
  // A sample of a padded batch is summed up as it is alone: in a tile of its own.
  while (!p.lengths && 2 << t.samples_log2 <= kMostSamples && (sizes.l_out << (t.samples_log2 + 1)) <= t.tile_columns &&
         (1 << t.samples_log2) < p.n) {
    ++t.samples_log2;
  }
  t.samples = 1 << t.samples_log2;
  t.tile_positions = t.tile_columns >> t.samples_log2;
  t.staged = p.layout == CONVNORM_NCL && (t.samples > 1 || sizes.l_out * element_size(p.dtype) % 32 != 0);

  const int tile_rows = kBlockRows * t.warpgroups;
  const bool norm = has_norm(p);
  const int group_rows = static_cast<int>(sizes.o_per_norm_group);
  t.row_tiles = static_cast<int>(quotient_up(p.o, tile_rows));
  t.blocks = t.row_tiles * t.warpgroups;
  t.column_tiles = static_cast<int>(quotient_up(sizes.l_out, t.tile_positions));
  t.sample_blocks = static_cast<int>(quotient_up(p.n, t.samples));
  t.domain_column_tiles = norm ? t.column_tiles : 1;
  t.halves = has_post(p, CONVNORM_GLU);
  t.domain_row_tiles = norm ? domain_row_tiles(p, group_rows, t) : 1;
  t.row_domains = WideDivisor(static_cast<uint32_t>(quotient_up(t.row_tiles, t.domain_row_tiles)));
  const int64_t team = int64_t{t.domain_row_tiles} * t.domain_column_tiles;
  if (team > most_ctas) {
    return "a group's outputs take " + text(team) + " tiles of " + text(tile_rows) + " channels x " +
           text(t.tile_columns) + " columns, more than the " + text(most_ctas) + " that the SMs hold";
  }
  const int64_t domains = int64_t{t.row_domains.value} * (t.column_tiles / t.domain_column_tiles) * t.sample_blocks;
  if (domains >= kMostPositions) return "sizes exceed 32-bit tile counts";
  t.team_ctas = static_cast<int>(team);
  t.domains = static_cast<int>(domains);
  t.teams = static_cast<int>(std::min<int64_t>(domains, most_ctas / team));
  t.iterations = static_cast<int>(quotient_up(domains, t.teams));
  // Even out: no team has more than one domain less than another, so fewer teams may do as well.
  t.teams = static_cast<int>(quotient_up(domains, t.iterations));
  // Where the last row tiles are a smaller domain, some CTAs of a team have nothing to do there and wait for nobody.
  // They must not run ahead of those that still read their words of the round before: a team then keeps to one place of
  // the domains of a sample.
  const int row_domains = static_cast<int>(t.row_domains.value);
  if (t.row_tiles % t.domain_row_tiles != 0 && t.iterations > 2 && t.teams > row_domains) {
    t.teams -= t.teams % row_domains;
    t.iterations = static_cast<int>(quotient_up(domains, t.teams));
  }
  const bool crosses_blocks = norm && kBlockRows % group_rows != 0 && p.o > kBlockRows;
  t.words_per_warpgroup = 0;
  if (norm && (t.column_tiles > 1 || crosses_blocks)) {
    t.words_per_warpgroup = t.samples == 1 ? std::min(kBlockRows, kBlockRows / group_rows + 2) : 2 * t.samples;
  }
  t.group_rows = Divisor(static_cast<uint32_t>(std::max<int64_t>(sizes.o_per_norm_group, 1)));
  t.column_tile_divisor = WideDivisor(static_cast<uint32_t>(t.column_tiles));
  choose_epilogue(p, sizes, least_by_warps, t);
  return std::nullopt;
}

std::optional<std::string> lay_out_rows(const Problem& p, const Sizes&, const Tiles& t, Rows& r) {
  r.last_shift = static_cast<int>((p.k - 1) * p.dilation / p.stride);
  const int64_t phase_rows = (int64_t{t.tile_positions} + r.last_shift) * t.samples;
  const int64_t rows = (phase_rows * p.stride + 7) / 8 * 8;
  if (rows > kMostRows) return "x under a tile would have " + text(rows) + " rows, more than the kernel can step over";
  r.phase_rows = static_cast<int>(phase_rows);
  r.slot_rows = Divisor(static_cast<uint32_t>(rows));
  r.phase_row_divisor = Divisor(static_cast<uint32_t>(phase_rows));
  r.plain_rows = t.samples == 1 && p.layout == CONVNORM_NCL && p.stride == 1 && p.pad == CONVNORM_ZEROS;
  r.tap_shift = static_cast<int>(p.dilation / p.stride) * t.samples;
  r.tap_phase = static_cast<int>(p.dilation % p.stride);
  return std::nullopt;
}

std::optional<std::string> refuse_on_chip(const Problem& p, const Sizes& sizes, bool takes_nlc) {
  if (p.layout != CONVNORM_NCL && !takes_nlc) return "layout=nlc: tensors are taken channels first";
  if (p.n == 0 || sizes.l_out == 0 || p.l == 0) return "there is nothing to compute";
  if (sizes.l_out >= kMostPositions || p.l >= kMostPositions || p.n >= kMostPositions || p.o >= kMostChannels ||
      p.c >= kMostPositions || p.k >= kMostRows || p.stride >= kMostRows || p.dilation >= kMostPositions ||
      p.pad_left >= kMostPositions) {
    return "sizes exceed the kernel's 32-bit positions and 16-bit channels";
  }
  return std::nullopt;
}

int parts_of(const Problem& p) {
  if (p.dtype != CONVNORM_F32 || p.precision == CONVNORM_MEDIUM) return 1;
  const bool raw_signal = p.c / p.conv_groups * p.k <= kRawSignalProducts;
  return p.precision == CONVNORM_HIGHEST || raw_signal ? 3 : 2;
}

}  // namespace convnorm::cuda
