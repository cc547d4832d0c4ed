// resident: a task computes whole norm groups of one sample; z stays in the worker's second-level cache, where it is
// measured, normalised and finished before it is stored once.
#include "kernels/cpu/executable.hpp"
#include "kernels/cpu/strategies.hpp"

namespace convnorm::cpu {

namespace {

// Rows over which one packing of x is shared; more do not pay, fewer make more tasks.
constexpr int64_t kMostRows = 64;

int64_t z_row_floats(const Geometry& g) { return round_up(g.sizes.l_out, g.panel) + 16; }

class Resident final : public CpuExecutable {
 public:
  using CpuExecutable::CpuExecutable;

 private:
  int64_t samples_held() const override { return threads_; }
  int64_t worker_floats() const override {
    return Convolver::scratch_floats(g_) + g_.halves * g_.block_rows * z_row_floats(g_) + Finisher::kScratchFloats;
  }

  void execute(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel) const override {
    const int64_t blocks = g_.blocks(), z_row = z_row_floats(g_);
    deal(parallel, threads_, g_.problem.n * blocks, [&](int w, const auto& next) {
      float* z = memory.worker(w);
      float* finish_scratch = z + g_.halves * g_.block_rows * z_row;
      Convolver conv(g_, run.tensors.x, static_cast<const float*>(packed), run.parameters.bias,
                     finish_scratch + Finisher::kScratchFloats);
      GroupNorm* norms = memory.norms + w * g_.problem.groups;
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t n = i / blocks, l_out = run.l_out(n);
        const HeldRows rows{g_, g_.block(i % blocks)};
        convolve_block(conv, run, n, rows, 0, l_out, z, z_row);
        measure_groups(run, n, rows, z, z_row, norms);
        const Finisher finish(run, norms, n, store_past_caches(g_), finish_scratch);
        finish.rows(n, rows.block.first, rows.block.rows, 0, l_out, z,
                    g_.halves == 2 ? z + rows.block.rows * z_row : nullptr, z_row);
        finish.zero_tail(n, rows.block.first, rows.block.rows, l_out);
      }
    });
  }

  void measure_groups(const Run& run, int64_t n, const HeldRows& rows, const float* z, int64_t z_row,
                      GroupNorm* norms) const {
    const Problem& p = g_.problem;
    const int64_t channels = g_.sizes.o_per_norm_group, l_out = run.l_out(n);
    int64_t done = -1;  // with a glu and an odd G the middle group lies in both halves
    for (int64_t h = 0; h < g_.halves; ++h) {
      const int64_t first = rows.channel(h) / channels, last = (rows.channel(h) + rows.block.rows - 1) / channels;
      for (int64_t group = std::max(first, done + 1); group <= last; ++group) {
        Moments total;
        for (int64_t o = group * channels; o < (group + 1) * channels; ++o) {
          const float* row = z + rows.row_of(o) * z_row;
          for (int64_t at = 0; at < l_out; at += kStatisticsBlock) {
            merge(total, g_.kernels->row_moments(row + at, std::min(kStatisticsBlock, l_out - at)));
          }
        }
        norms[group] = GroupNorm::from(total, p.eps);
        done = group;
      }
    }
  }
};

}  // namespace

Answer consider_resident(const PlanRequest& r) {
  const Problem& p = r.problem;
  const Kernels& kernels = *find_kernels(r.target);
  if (!has_norm(p)) return Refusal{"g=0: without a norm nothing has to be held"};
  const Geometry g(p, kernels, 1);
  // Channels that must be finished together: a norm group, or all of them where a glu pairs parts of groups.
  const int64_t unit = g.halves == 2 && p.groups % 2 != 0 ? g.half : r.sizes.o_per_norm_group;
  const int64_t budget = cache_bytes(2) * 5 / 8, row_bytes = g.halves * z_row_floats(g) * 4;
  if (unit * row_bytes > budget) {
    return Refusal{"the " + std::to_string(unit * row_bytes / 1024) + " KiB of one norm group exceed " +
                   std::to_string(budget / 1024) + " KiB of second-level cache"};
  }
  const int64_t units = g.half / unit;
  if (p.n * units < r.threads && r.sizes.flops > 4e6) {
    return Refusal{std::to_string(p.n * units) + " independent norm groups leave some of " + std::to_string(r.threads) +
                   " threads idle"};
  }
  // Blocks do not depend on the number of threads, so that packed weights serve plans of any number.
  const int64_t fit = std::clamp<int64_t>(std::min(budget / row_bytes, kMostRows / g.halves) / unit, 1, units);
  if (p.conv_groups == 1 && fit < units && fit * unit * g.halves < 2 * kernels.wide_rows) {
    return Refusal{"only " + std::to_string(fit * unit * g.halves) +
                   " channels fit the cache, too few to share the packed inputs"};
  }
  const int64_t blocks = ceil_div(units, fit);
  return accept_if_it_fits(std::make_unique<Resident>(r, kernels, ceil_div(units, blocks) * unit));
}

}  // namespace convnorm::cpu
