// moments: many channels of few inputs, as in raw audio. Mean and variance of a channel follow from the means and the
// second moments of its input columns (one column per input channel and tap), so the statistics cost K*K products per
// position instead of C_out*K. They are taken in double; a channel whose filter cancels its inputs so far that even
// these could tell is measured directly, with its sample. The result is then computed and stored in one pass.
#include <cmath>

#include "kernels/cpu/strategies.hpp"
#include "kernels/cpu/streaming.hpp"

namespace convnorm::cpu {

namespace {

// Per channel the moments must pay for themselves.
constexpr int64_t kChannelsPerStep = 4;
// Below this share of the variance that its inputs could give, a channel counts as cancelled: fp32 results then carry
// rounding errors that only statistics of the results themselves take out.
constexpr double kCancelled = 1e-6;
constexpr int64_t kFewestValues = 64;

// Means of the columns and sums of products of their deviations, upper triangle by rows.
struct ColumnMoments {
  double* means;
  double* products;
};

class MomentsPath final : public Streaming {
 public:
  using Streaming::Streaming;

  // The weights once more, row after row, for the quadratic forms.
  size_t packed_bytes() const override { return 2 * Streaming::packed_bytes(); }
  void pack(const void* weight, void* packed, const Launch& launch) const override {
    Streaming::pack(weight, packed, launch);
    g_.kernels->to_float(weight, g_.problem.dtype, static_cast<float*>(packed) + g_.packed_floats(),
                         g_.packed_floats());
  }

  std::vector<std::pair<std::string, std::string>> config() const override {
    auto c = CpuExecutable::config();
    c.emplace_back("passes", "1, after second moments of " + std::to_string(g_.steps) + " columns");
    return c;
  }
  Accounting accounting() const override {
    Accounting a = Streaming::accounting();
    const double groups = static_cast<double>(g_.problem.n * g_.problem.conv_groups);
    a.flops = g_.sizes.flops + groups * static_cast<double>(g_.sizes.l_out * g_.steps * (g_.steps + 1));
    return a;
  }

 private:
  int64_t columns() const { return g_.steps; }
  int64_t pairs() const { return columns() * (columns() + 1) / 2; }
  int64_t record() const { return columns() + pairs(); }  // doubles
  int64_t store_floats() const override {
    return 2 * record() * samples_held() * g_.problem.conv_groups * partial_blocks();
  }

  // `sample` counts from the first that is held.
  ColumnMoments at(const Memory& memory, int64_t sample, int64_t conv_group, int64_t strip) const {
    const int64_t index = (sample * g_.problem.conv_groups + conv_group) * partial_blocks() + strip;
    double* means = reinterpret_cast<double*>(memory.store) + index * record();
    return {means, means + columns()};
  }

  void measure(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel,
               const Wave& wave) const override {
    const int64_t strips = partial_blocks(), conv_groups = g_.problem.conv_groups, samples = wave.end - wave.begin;
    deal(parallel, threads_, samples * conv_groups * strips, [&](int w, const auto& next) {
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t sample = i / (strips * conv_groups), conv_group = i / strips % conv_groups, strip = i % strips;
        measure_columns(run, at(memory, sample, conv_group, strip), wave.begin + sample, conv_group, strip,
                        memory.worker(w));
      }
    });
    const float* weights = static_cast<const float*>(packed) + g_.packed_floats();
    deal(parallel, threads_, samples * conv_groups, [&](int, const auto& next) {
      for (int64_t i = next(); i >= 0; i = next()) {
        measure_channels(run, memory, wave.begin, i / conv_groups, i % conv_groups, weights);
      }
    });
    // A cancelled channel has left a count of -1.
    for (int64_t n = wave.begin; n < wave.end; ++n) {
      const Moments* partial = memory.partial + (n - wave.begin) * g_.problem.o * strips;
      bool cancelled = false;
      for (int64_t o = 0; o < g_.problem.o; ++o) cancelled |= partial[o * strips].count < 0;
      if (cancelled) pass<true>(run, memory, packed, parallel, {wave.begin, n, n + 1});
    }
  }

  void measure_columns(const Run& run, const ColumnMoments& m, int64_t n, int64_t conv_group, int64_t strip,
                       float* scratch) const {
    const int64_t begin = strip * kStatisticsBlock, count = std::min(kStatisticsBlock, run.l_out(n) - begin);
    if (count <= 0) return;
    const Chunk chunk = g_.chunk(0);
    pack_inputs(g_, run.tensors.x, n, run.length(n), conv_group, chunk, begin, scratch,
                scratch + g_.channel_chunk * g_.x_row);
    const float* column[kMostMomentColumns];
    for (int64_t c = 0; c < chunk.channels; ++c) {
      for (int64_t t = 0; t < chunk.taps; ++t)
        column[c * chunk.taps + t] = scratch + c * g_.x_row + g_.tap_offset[static_cast<size_t>(t)];
    }
    g_.kernels->column_moments(column, columns(), count, m.means, m.products);
  }

  void measure_channels(const Run& run, const Memory& memory, int64_t first, int64_t sample, int64_t conv_group,
                        const float* weights) const {
    const int64_t strips = partial_blocks(), l_out = run.l_out(first + sample);
    const ColumnMoments total = at(memory, sample, conv_group, 0);
    for (int64_t strip = 1; strip * kStatisticsBlock < l_out; ++strip) {
      const double before = static_cast<double>(strip * kStatisticsBlock);
      const double count = static_cast<double>(std::min(kStatisticsBlock, l_out - strip * kStatisticsBlock));
      merge_columns(total, before, at(memory, sample, conv_group, strip), count);
    }
    for (int64_t r = 0; r < g_.sizes.o_per_conv_group; ++r) {
      const int64_t o = conv_group * g_.sizes.o_per_conv_group + r;
      Moments* partial = memory.partial + (sample * g_.problem.o + o) * strips;
      std::fill(partial, partial + strips, Moments{});
      if (l_out > 0) {
        const double bias = run.parameters.bias ? static_cast<double>(run.parameters.bias[o]) : 0.0;
        partial[0] = channel(total, weights + o * columns(), static_cast<double>(l_out), bias);
      }
    }
  }

  void merge_columns(const ColumnMoments& a, double before, const ColumnMoments& b, double count) const {
    const double all = before + count, weight = before * count / all;
    double delta[kMostMomentColumns];
    for (int64_t i = 0; i < columns(); ++i) delta[i] = b.means[i] - a.means[i];
    for (int64_t i = 0, at = 0; i < columns(); ++i) {
      for (int64_t j = i; j < columns(); ++j, ++at) a.products[at] += b.products[at] + delta[i] * delta[j] * weight;
    }
    for (int64_t i = 0; i < columns(); ++i) a.means[i] += delta[i] * count / all;
  }

  Moments channel(const ColumnMoments& m, const float* w, double count, double bias) const {
    double mean = bias, m2 = 0, reach = std::abs(bias);
    for (int64_t i = 0, at = 0; i < columns(); ++i) {
      mean += static_cast<double>(w[i]) * m.means[i];
      reach += std::abs(static_cast<double>(w[i])) * std::sqrt(m.means[i] * m.means[i] + m.products[at] / count);
      m2 += static_cast<double>(w[i]) * w[i] * m.products[at++];
      for (int64_t j = i + 1; j < columns(); ++j) m2 += 2.0 * w[i] * w[j] * m.products[at++];
    }
    // Not (a >= b): NaN is measured directly too.
    const bool cancelled = !(m2 / count >= kCancelled * reach * reach) || !std::isfinite(m2);
    return {cancelled ? -1.0 : count, mean, m2};
  }
};

}  // namespace

Answer consider_moments(const PlanRequest& r) {
  const Problem& p = r.problem;
  const int64_t steps = r.sizes.c_per_conv_group * p.k;
  if (!has_norm(p)) return Refusal{"g=0: without a norm there are no statistics to take"};
  if (p.pre.op != CONVNORM_NONE) return Refusal{"an operation before the norm changes the statistics"};
  if (steps > kMostMomentColumns || r.sizes.o_per_conv_group < kChannelsPerStep * steps) {
    return Refusal{std::to_string(r.sizes.o_per_conv_group) + " channels of " + std::to_string(steps) +
                   " products do not pay for second moments (limit " + std::to_string(kMostMomentColumns) +
                   " products, " + std::to_string(kChannelsPerStep) + " channels for each)"};
  }
  if (r.sizes.l_out * r.sizes.o_per_norm_group < kFewestValues) {
    return Refusal{"groups of " + std::to_string(r.sizes.l_out * r.sizes.o_per_norm_group) +
                   " values are measured directly (limit " + std::to_string(kFewestValues) + ")"};
  }
  const Kernels& kernels = *find_kernels(r.target);
  const int64_t rows = streaming_rows(r, kStreamingRows);
  const Geometry g(p, kernels, rows);
  if (g.chunks() > 1 || g.strip < std::min(kStatisticsBlock, r.sizes.l_out)) {
    return Refusal{"d=" + std::to_string(p.dilation) + ", s=" + std::to_string(p.stride) +
                   ": the inputs of a strip do not fit one chunk"};
  }
  return accept_if_it_fits(std::make_unique<MomentsPath>(r, kernels, rows));
}

}  // namespace convnorm::cpu
