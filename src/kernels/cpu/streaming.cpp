// streaming: the convolution is cheap beside a trip through memory, so it is done twice: once for the statistics, once
// for the result. Nothing but x is read and nothing but y is written. Without a norm a single pass is left.
#include "kernels/cpu/streaming.hpp"

#include "kernels/cpu/strategies.hpp"

namespace convnorm::cpu {

namespace {

constexpr int64_t kZRow = kStatisticsBlock + 16;
// Above this many products per output, storing z and reading it back is cheaper than computing it again.
constexpr int64_t kMostSteps = 32;
constexpr int64_t kTasksForAnEvenLoad = 64;
constexpr int64_t kMostMomentsBytes = int64_t{16} << 20;

}  // namespace

std::vector<std::pair<std::string, std::string>> Streaming::config() const {
  auto c = CpuExecutable::config();
  c.emplace_back("passes", has_norm(g_.problem) ? "2 (statistics, result)" : "1");
  return c;
}

Accounting Streaming::accounting() const {
  Accounting a = CpuExecutable::accounting();
  if (has_norm(g_.problem)) {
    a.flops *= 2;
    a.moved_bytes += static_cast<double>(g_.sizes.x_elements * element_size(g_.problem.dtype));
  }
  return a;
}

int64_t Streaming::worker_floats() const {
  return Convolver::scratch_floats(g_) + g_.halves * g_.block_rows * kZRow + Finisher::kScratchFloats;
}

template <bool kStatistics>
void Streaming::one(const Run& run, const Memory& memory, Convolver& conv, const Finisher& finish, const Wave& wave,
                    int64_t n, const HeldRows& rows, int64_t strip, float* z) const {
  const int64_t l_out = run.l_out(n), begin = strip * kStatisticsBlock, end = std::min(begin + kStatisticsBlock, l_out);
  if (begin < end) {
    convolve_block(conv, run, n, rows, begin, end, z, kZRow);
    if constexpr (kStatistics) {
      for (int64_t r = 0; r < rows.count(); ++r) {
        const int64_t o = rows.channel(r / rows.block.rows) + r % rows.block.rows;
        memory.partial[((n - wave.first_held) * g_.problem.o + o) * partial_blocks() + strip] =
            g_.kernels->row_moments(z + r * kZRow, end - begin);
      }
    } else {
      finish.rows(n, rows.block.first, rows.block.rows, begin, end - begin, z,
                  g_.halves == 2 ? z + rows.block.rows * kZRow : nullptr, kZRow);
    }
  }
  if (!kStatistics && strip == partial_blocks() - 1) finish.zero_tail(n, rows.block.first, rows.block.rows, l_out);
}

template <bool kStatistics>
void Streaming::pass(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel,
                     const Wave& wave) const {
  const int64_t strips = partial_blocks(), runs = ceil_div(strips, strips_per_task());
  const int64_t shared = blocks_per_task(), parts = g_.blocks() / shared;
  deal(parallel, threads_, (wave.end - wave.begin) * parts * runs, [&](int w, const auto& next) {
    float* z = memory.worker(w);
    float* finish_scratch = z + g_.halves * g_.block_rows * kZRow;
    Convolver conv(g_, run.tensors.x, static_cast<const float*>(packed), run.parameters.bias,
                   finish_scratch + Finisher::kScratchFloats);
    const Finisher finish(run, memory.norms, wave.first_held, store_past_caches(g_), finish_scratch);
    for (int64_t i = next(); i >= 0; i = next()) {
      const int64_t n = wave.begin + i / (parts * runs), part = i / runs % parts, first = i % runs * strips_per_task();
      for (int64_t strip = first; strip < std::min(strips, first + strips_per_task()); ++strip) {
        for (int64_t b = part * shared; b < (part + 1) * shared; ++b) {
          one<kStatistics>(run, memory, conv, finish, wave, n, HeldRows{g_, g_.block(b)}, strip, z);
        }
      }
    }
  });
}

template void Streaming::pass<true>(const Run&, const Memory&, const void*, const Parallel&, const Wave&) const;

// Samples go in waves whose inputs are still in the last-level cache when they are read again, and whose partial
// moments stay small.
int64_t Streaming::samples_held() const {
  const Problem& p = g_.problem;
  if (!has_norm(p)) return std::max<int64_t>(1, p.n);
  const int64_t x_bytes = std::max<int64_t>(1, p.c * p.l * element_size(p.dtype));
  const int64_t tasks = g_.blocks() / blocks_per_task() * ceil_div(partial_blocks(), strips_per_task());
  const int64_t cached = std::min(cache_bytes(3), kSharedCacheBytes) / 4 / x_bytes;
  const int64_t wanted = std::max(cached, ceil_div(kTasksForAnEvenLoad, tasks));
  const int64_t moments_bytes = static_cast<int64_t>(sizeof(Moments)) * p.o * partial_blocks();
  return std::clamp<int64_t>(std::min(wanted, kMostMomentsBytes / moments_bytes), 1, std::max<int64_t>(1, p.n));
}

void Streaming::execute(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel) const {
  const Problem& p = g_.problem;
  const int64_t held = samples_held();
  for (int64_t n = 0; n < p.n; n += held) {
    const Wave wave{n, n, std::min(p.n, n + held)};
    if (has_norm(p)) {
      measure(run, memory, packed, parallel, wave);
      deal(parallel, threads_, (wave.end - n) * p.groups, [&](int, const auto& next) {
        for (int64_t i = next(); i >= 0; i = next()) {
          const int64_t sample = i / p.groups;
          const Moments* partial = memory.partial + sample * p.o * partial_blocks();
          memory.norms[i] = merge_group(run, partial, partial_blocks(), n + sample, i % p.groups);
        }
      });
    }
    pass<false>(run, memory, packed, parallel, wave);
  }
}

int64_t streaming_rows(const PlanRequest& r, int64_t most) {
  const int64_t halves = has_post(r.problem, CONVNORM_GLU) ? 2 : 1, half = r.problem.o / halves;
  const bool channels_last = r.problem.layout == CONVNORM_NLC;  // wants neighbouring channels stored together
  if (r.problem.conv_groups > 1 && !channels_last) most = std::min(most, r.sizes.o_per_conv_group);
  return std::clamp<int64_t>(most / halves, 1, half);
}

namespace {

Answer accept(const PlanRequest& r, int64_t most_rows) {
  return accept_if_it_fits(std::make_unique<Streaming>(r, *find_kernels(r.target), streaming_rows(r, most_rows)));
}

}  // namespace

Answer consider_streaming(const PlanRequest& r) {
  const int64_t steps = r.sizes.c_per_conv_group * r.problem.k;
  if (!has_norm(r.problem)) return accept(r, 96);
  if (steps <= kMostSteps) return accept(r, kStreamingRows);
  return Refusal{"computing " + std::to_string(steps) +
                 " products per output twice costs more than keeping the sums (limit " + std::to_string(kMostSteps) +
                 ")"};
}

Answer consider_recompute(const PlanRequest& r) { return accept(r, 96); }

}  // namespace convnorm::cpu
