// streaming: the convolution is cheap beside a trip through memory, so it is done twice: once for the statistics, once
// for the result. Nothing but x is read and nothing but y is written. Without a norm a single pass is left.
#include "kernels/cpu/executable.hpp"
#include "kernels/cpu/strategies.hpp"

namespace convnorm::cpu {

namespace {

constexpr int64_t kZRow = kStatisticsBlock + 16;

class Streaming final : public CpuExecutable {
 public:
  using CpuExecutable::CpuExecutable;

  std::vector<std::pair<std::string, std::string>> config() const override {
    auto c = CpuExecutable::config();
    c.emplace_back("passes", has_norm(g_.problem) ? "2 (statistics, result)" : "1");
    return c;
  }
  Accounting accounting() const override {
    Accounting a = CpuExecutable::accounting();
    if (has_norm(g_.problem)) {
      a.flops *= 2;
      a.moved_bytes += static_cast<double>(g_.sizes.x_elements * element_size(g_.problem.dtype));
    }
    return a;
  }

 private:
  int64_t worker_floats() const override {
    return Convolver::scratch_floats(g_) + g_.halves * g_.block_rows * kZRow + Finisher::kScratchFloats;
  }
  bool merges_across_tasks() const override { return has_norm(g_.problem); }

  // With one conv group all blocks of a strip share its packed inputs and form one task.
  int64_t blocks_per_task() const { return g_.problem.conv_groups == 1 ? g_.blocks() : 1; }

  void execute(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel) const override {
    const Problem& p = g_.problem;
    // Samples go in waves whose inputs are still in the last-level cache when they are read again.
    const int64_t x_bytes = std::max<int64_t>(1, p.c * p.l * element_size(p.dtype));
    const int64_t tasks = g_.blocks() / blocks_per_task() * partial_blocks();
    const int64_t wave = std::max({int64_t{1}, cache_bytes(3) / 2 / x_bytes, ceil_div(4 * threads_, tasks)});
    for (int64_t n = 0; n < p.n; n += wave) {
      const int64_t end = std::min(p.n, n + wave);
      if (has_norm(p)) {
        pass<true>(run, memory, packed, parallel, n, end);
        deal(parallel, threads_, (end - n) * p.groups, [&](int, const auto& next) {
          for (int64_t i = next(); i >= 0; i = next()) {
            merge_groups(run, memory.partial, partial_blocks(), n + i / p.groups, i % p.groups, memory.norms);
          }
        });
      }
      pass<false>(run, memory, packed, parallel, n, end);
    }
  }

  template <bool kStatistics>
  void pass(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel, int64_t n0, int64_t n1) const {
    const int64_t strips = partial_blocks(), shared = blocks_per_task(), parts = g_.blocks() / shared;
    deal(parallel, threads_, (n1 - n0) * parts * strips, [&](int w, const auto& next) {
      float* z = memory.worker(w);
      float* finish_scratch = z + g_.halves * g_.block_rows * kZRow;
      Convolver conv(g_, run.tensors.x, static_cast<const float*>(packed), run.parameters.bias,
                     finish_scratch + Finisher::kScratchFloats);
      const Finisher finish(run, memory.norms, store_past_caches(g_), finish_scratch);
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t n = n0 + i / (parts * strips), part = i / strips % parts, strip = i % strips;
        const int64_t begin = strip * kStatisticsBlock, end = std::min(begin + kStatisticsBlock, run.l_out(n));
        for (int64_t b = part * shared; b < (part + 1) * shared; ++b) {
          const HeldRows rows{g_, g_.block(b)};
          if (begin < end) {
            convolve_block(conv, run, n, rows, begin, end, z, kZRow);
            if constexpr (kStatistics) {
              for (int64_t r = 0; r < rows.count(); ++r) {
                const int64_t o = rows.channel(r / rows.block.rows) + r % rows.block.rows;
                memory.partial[(n * g_.problem.o + o) * strips + strip] = g_.kernels->row_moments(z + r * kZRow, end - begin);
              }
            } else {
              finish.rows(n, rows.block.first, rows.block.rows, begin, end - begin, z,
                          g_.halves == 2 ? z + rows.block.rows * kZRow : nullptr, kZRow);
            }
          }
          if (!kStatistics && strip == strips - 1) finish.zero_tail(n, rows.block.first, rows.block.rows, run.l_out(n));
        }
      }
    });
  }
};

Answer accept(const PlanRequest& r, int64_t rows) {
  const bool glu = has_post(r.problem, CONVNORM_GLU);
  const int64_t half = r.problem.o / (glu ? 2 : 1);
  return std::make_unique<Streaming>(r, *find_kernels(r.target), std::min(half, rows / (glu ? 2 : 1)));
}

}  // namespace

Answer consider_streaming(const PlanRequest& r) {
  const int64_t steps = r.sizes.c_per_conv_group * r.problem.k;
  if (!has_norm(r.problem)) return accept(r, 96);
  if (steps <= kMostRecomputedSteps) return accept(r, 48);
  return Refusal{"computing " + std::to_string(steps) + " products per output twice costs more than keeping the sums (limit " +
                 std::to_string(kMostRecomputedSteps) + ")"};
}

Answer consider_recompute(const PlanRequest& r) { return accept(r, 96); }

}  // namespace convnorm::cpu
