// split: groups larger than the cache. Convolution tasks keep z (in y itself where y is fp32 rows, else in the
// workspace) and leave moments of every strip; these are merged in order; a second set of tasks normalises and
// finishes. Samples, and if need be groups, go in turn, so that z is still in the last-level cache where that is
// possible.
#include "kernels/cpu/executable.hpp"
#include "kernels/cpu/strategies.hpp"

namespace convnorm::cpu {

namespace {

constexpr int64_t kZRow = kStatisticsBlock + 16;
constexpr int64_t kMostRows = 128;
constexpr int64_t kFinishSegment = 8 * kStatisticsBlock;
// Of the workspace's allowance; the rest is for partial moments and workers.
constexpr int64_t kStoreAllowance = kWorkspaceAllowance * 5 / 8;
constexpr int64_t kTasksForAnEvenLoad = 64;

struct Domains {
  bool in_y;              // z is kept in y
  int64_t unit;           // channels (of each half) that share statistics or a glu
  int64_t units_at_once;  // units whose z is kept at the same time
  int64_t samples_at_once;

  Domains(const Problem& p, const Sizes& s) {
    const bool glu = has_post(p, CONVNORM_GLU);
    const int64_t halves = glu ? 2 : 1, half = p.o / halves;
    in_y = p.dtype == CONVNORM_F32 && p.layout == CONVNORM_NCL && !glu;
    unit = glu && p.groups % 2 != 0 ? half : s.o_per_norm_group;
    const int64_t units = half / unit, unit_bytes = std::max<int64_t>(1, halves * unit * s.l_out * 4);
    const int64_t limit = in_y ? INT64_MAX : s.y_elements * element_size(p.dtype) + kStoreAllowance;
    fits = unit_bytes <= limit;
    units_at_once = std::clamp<int64_t>(limit / unit_bytes, 1, units);
    const int64_t tasks = std::max<int64_t>(1, ceil_div(half, kMostRows) * ceil_div(s.l_out, kStatisticsBlock));
    samples_at_once = std::max<int64_t>(1, ceil_div(kTasksForAnEvenLoad, tasks));
    if (units_at_once < units) samples_at_once = 1;
    samples_at_once = std::clamp<int64_t>(std::min(samples_at_once, limit / (units_at_once * unit_bytes)), 1,
                                          std::max<int64_t>(1, p.n));
  }
  bool fits;
};

class Split final : public CpuExecutable {
 public:
  Split(const PlanRequest& r, const Kernels& kernels, const Domains& domains, int64_t block_rows)
      : CpuExecutable(r, kernels, block_rows), domains_(domains) {}

  std::vector<std::pair<std::string, std::string>> config() const override {
    auto c = CpuExecutable::config();
    c.emplace_back("z kept in", domains_.in_y ? "y" : "workspace");
    c.emplace_back("at once", std::to_string(domains_.samples_at_once) + " samples, " +
                                  std::to_string(domains_.units_at_once * domains_.unit * g_.halves) + " channels");
    return c;
  }
  Accounting accounting() const override {
    Accounting a = CpuExecutable::accounting();
    a.z_bytes = static_cast<double>(g_.sizes.z_elements) * 4;
    a.moved_bytes += 2 * a.z_bytes;
    return a;
  }

 private:
  int64_t worker_floats() const override {
    return Convolver::scratch_floats(g_) + g_.block_rows * kZRow + Finisher::kScratchFloats;
  }
  int64_t samples_held() const override { return domains_.samples_at_once; }
  bool merges_across_tasks() const override { return true; }
  int64_t store_floats() const override {
    if (domains_.in_y) return 0;
    return domains_.samples_at_once * domains_.units_at_once * domains_.unit * g_.halves * g_.sizes.l_out;
  }

  // Blocks of rows that lie in the channels [first, last) of each half.
  struct Range {
    int64_t n0, n1, first, last;
  };

  float* z_row(const Run& run, const Memory& memory, const Range& range, int64_t n, int64_t o) const {
    if (domains_.in_y) return static_cast<float*>(run.tensors.y) + (n * g_.problem.o + o) * g_.sizes.l_out;
    const int64_t held = range.last - range.first, h = o / g_.half;
    return memory.store + (((n - range.n0) * g_.halves + h) * held + o % g_.half - range.first) * g_.sizes.l_out;
  }

  void execute(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel) const override {
    const Problem& p = g_.problem;
    const int64_t channels = domains_.units_at_once * domains_.unit;
    for (int64_t n = 0; n < p.n; n += domains_.samples_at_once) {
      for (int64_t first = 0; first < g_.half; first += channels) {
        const Range range{n, std::min(p.n, n + domains_.samples_at_once), first, std::min(g_.half, first + channels)};
        convolve(run, memory, packed, parallel, range);
        normalise(run, memory, parallel, range);
        finish(run, memory, parallel, range);
      }
    }
  }

  void convolve(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel,
                const Range& range) const {
    const int64_t strips = partial_blocks(), b0 = range.first / g_.block_rows,
                  blocks = ceil_div(range.last, g_.block_rows) - b0;
    deal(parallel, threads_, (range.n1 - range.n0) * g_.halves * blocks * strips, [&](int w, const auto& next) {
      float* z = memory.worker(w);
      Convolver conv(g_, run.tensors.x, static_cast<const float*>(packed), run.parameters.bias,
                     z + g_.block_rows * kZRow + Finisher::kScratchFloats);
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t strip = i % strips, h = i / strips % g_.halves, b = b0 + i / strips / g_.halves % blocks;
        const int64_t n = range.n0 + i / strips / g_.halves / blocks;
        const int64_t begin = strip * kStatisticsBlock, end = std::min(begin + kStatisticsBlock, run.l_out(n));
        if (begin >= end) continue;
        Block block = g_.block(b);
        block.first += h * g_.half;
        conv(n, run.length(n), block, begin, end, z, kZRow);
        for (int64_t r = 0; r < block.rows; ++r) {
          const int64_t o = block.first + r;
          float* row = z + r * kZRow;
          run.pre(o, row, end - begin);
          memory.partial[((n - range.n0) * g_.problem.o + o) * strips + strip] =
              g_.kernels->row_moments(row, end - begin);
          g_.kernels->to_float(row, CONVNORM_F32, z_row(run, memory, range, n, o) + begin, end - begin);
        }
      }
    });
  }

  void normalise(const Run& run, const Memory& memory, const Parallel& parallel, const Range& range) const {
    const int64_t channels = g_.sizes.o_per_norm_group, groups = g_.problem.groups;
    // Either all groups, or whole groups of each half.
    const bool all = range.first == 0 && range.last == g_.half;
    const int64_t sets = all ? 1 : g_.halves;
    const int64_t per_set = all ? groups : (range.last - range.first) / channels;
    deal(parallel, threads_, (range.n1 - range.n0) * sets * per_set, [&](int, const auto& next) {
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t h = i / per_set % sets, group = (range.first + h * g_.half) / channels + i % per_set;
        const int64_t sample = i / (sets * per_set);
        const Moments* partial = memory.partial + sample * g_.problem.o * partial_blocks();
        memory.norms[sample * groups + group] = merge_group(run, partial, partial_blocks(), range.n0 + sample, group);
      }
    });
  }

  void finish(const Run& run, const Memory& memory, const Parallel& parallel, const Range& range) const {
    const int64_t segments = ceil_div(g_.sizes.l_out, kFinishSegment);
    // Channels last wants neighbouring channels in one task: they share cache lines of y.
    const int64_t together = g_.problem.layout == CONVNORM_NLC ? 64 : 1;
    const int64_t sets = ceil_div(range.last - range.first, together);
    deal(parallel, threads_, (range.n1 - range.n0) * sets * segments, [&](int w, const auto& next) {
      const Finisher finish(run, memory.norms, range.n0, false, memory.worker(w));
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t n = range.n0 + i / (sets * segments), segment = i % segments;
        const int64_t c = range.first + i / segments % sets * together, rows = std::min(together, range.last - c);
        const int64_t l_out = run.l_out(n), begin = segment * kFinishSegment,
                      end = std::min(begin + kFinishSegment, l_out);
        const float* z = z_row(run, memory, range, n, c) + begin;
        const float* partner = g_.halves == 2 ? z_row(run, memory, range, n, c + g_.half) + begin : nullptr;
        if (begin < end) finish.rows(n, c, rows, begin, end - begin, z, partner, g_.sizes.l_out);
        if (segment == segments - 1) finish.zero_tail(n, c, rows, l_out);
      }
    });
  }

  Domains domains_;
};

}  // namespace

Answer consider_split(const PlanRequest& r) {
  const Problem& p = r.problem;
  if (!has_norm(p)) return Refusal{"g=0: without a norm nothing has to be kept"};
  const Domains domains(p, r.sizes);
  if (!domains.fits) return Refusal{"keeping one norm group in fp32 would take a workspace larger than y plus 64 MiB"};
  const int64_t held = domains.units_at_once * domains.unit, half = p.o / (has_post(p, CONVNORM_GLU) ? 2 : 1);
  // Blocks must not straddle two ranges of channels that are kept at different times.
  int64_t rows = std::min(held, kMostRows);
  if (held < half) {
    while (held % rows != 0) --rows;
  }
  return accept_if_it_fits(std::make_unique<Split>(r, *find_kernels(r.target), domains, rows));
}

}  // namespace convnorm::cpu
