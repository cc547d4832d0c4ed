// small_l: few positions and many channels, as in robot policies. Output channels are the vector dimension, so that no
// lane is wasted on positions that do not exist; weights keep their 16 bits and stream through once, inputs are
// broadcast. z is small and stays in the caches between its three phases.
#include "kernels/cpu/executable.hpp"
#include "kernels/cpu/strategies.hpp"

namespace convnorm::cpu {

namespace {

constexpr int64_t kMostPositions = 32;
// z of all samples, and the packed inputs: both are read again from the caches.
constexpr int64_t kMostStoreBytes = int64_t{32} << 20;
// Samples that share one reading of a block of weights.
constexpr int64_t kMostSamples = 16;
// Tasks a worker that even out what the last one leaves idle.
constexpr int64_t kTasksForAnEvenLoad = 8;

class SmallL final : public CpuExecutable {
 public:
  SmallL(const PlanRequest& r, const Kernels& kernels)
      : CpuExecutable(r, kernels, r.sizes.o_per_conv_group),
        lanes_(kernels.channel_block),
        lane_blocks_(ceil_div(r.problem.o, lanes_)) {}

  size_t packed_bytes() const override {
    return static_cast<size_t>(lane_blocks_ * lanes_ * g_.steps * element_size(g_.problem.dtype));
  }

  void pack(const void* weight, void* packed, const Launch& launch) const override {
    if (g_.problem.dtype == CONVNORM_F32) return pack_as<uint32_t>(weight, packed, launch.parallel);
    return pack_as<uint16_t>(weight, packed, launch.parallel);
  }

  std::vector<std::pair<std::string, std::string>> config() const override {
    return {
        {"tile", std::to_string(g_.kernels->wide_rows) + " positions x " + std::to_string(lanes_) + " channels"},
        {"chunk", std::to_string(g_.channel_chunk) + " input channels x " + std::to_string(g_.tap_chunk) + " taps"},
        {"weights", std::string(dtype_name(g_.problem.dtype)) + ", blocks of " + std::to_string(lanes_) + " channels"}};
  }

 private:
  int64_t z_row() const { return round_up(g_.sizes.l_out, 16); }
  int64_t z_floats() const { return g_.problem.n * g_.problem.o * z_row(); }
  int64_t inputs_row() const { return g_.channel_chunk * g_.x_row; }
  int64_t inputs_floats() const { return g_.problem.n * g_.chunks() * inputs_row(); }
  int64_t tile_floats() const { return kMostSamples * g_.sizes.l_out * lanes_; }

  int64_t samples_held() const override { return g_.problem.n; }
  int64_t store_floats() const override { return z_floats() + inputs_floats(); }
  int64_t worker_floats() const override { return std::max({g_.line, tile_floats(), Finisher::kScratchFloats}); }

  // (block of channels, chunk, input channel, tap, lane); lanes past C_out are zero.
  template <class Element>
  void pack_as(const void* weight, void* packed, const Parallel& parallel) const {
    const Problem& p = g_.problem;
    deal(parallel, threads_, lane_blocks_, [&](int, const auto& next) {
      for (int64_t b = next(); b >= 0; b = next()) {
        Element* out = static_cast<Element*>(packed) + b * lanes_ * g_.steps;
        for (int64_t i = 0; i < g_.chunks(); ++i) {
          const Chunk chunk = g_.chunk(i);
          for (int64_t lane = 0; lane < lanes_; ++lane) {
            const int64_t o = b * lanes_ + lane;
            Element* to = out + chunk.steps_before * lanes_ + lane;
            for (int64_t c = chunk.channel; c < chunk.channel + chunk.channels; ++c) {
              const Element* from = static_cast<const Element*>(weight) + (o * g_.steps + c * p.k + chunk.tap);
              for (int64_t t = 0; t < chunk.taps; ++t, to += lanes_) *to = o < p.o ? from[t] : Element{0};
            }
          }
        }
      }
    });
  }

  // Whole norm groups as tasks: a worker convolves, measures and finishes its own without waiting for another. Only
  // where that leaves no worker idle, and where blocks of channels and groups have the same borders.
  bool groups_are_tasks() const {
    const Problem& p = g_.problem;
    if (!has_norm(p) || g_.halves == 2 || g_.sizes.o_per_norm_group % lanes_ != 0) return false;
    const int64_t tasks = p.groups * ceil_div(p.n, kMostSamples);
    return tasks % threads_ == 0 || tasks >= kTasksForAnEvenLoad * threads_;
  }

  void execute(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel) const override {
    const Problem& p = g_.problem;
    float* inputs = memory.store;
    float* z = memory.store + inputs_floats();
    const int64_t chunks = g_.chunks(), sample_sets = ceil_div(p.n, kMostSamples);

    deal(parallel, threads_, p.n * chunks, [&](int w, const auto& next) {
      for (int64_t i = next(); i >= 0; i = next()) {
        pack_inputs(g_, run.tensors.x, i / chunks, run.length(i / chunks), 0, g_.chunk(i % chunks), 0,
                    inputs + i * inputs_row(), memory.worker(w));
      }
    });

    if (groups_are_tasks()) {
      const int64_t channels = g_.sizes.o_per_norm_group, blocks = channels / lanes_;
      deal(parallel, threads_, p.groups * sample_sets, [&](int w, const auto& next) {
        const Finisher finisher(run, memory.norms, 0, false, memory.worker(w));
        for (int64_t i = next(); i >= 0; i = next()) {
          const int64_t group = i % p.groups, n0 = i / p.groups * kMostSamples, n1 = std::min(p.n, n0 + kMostSamples);
          for (int64_t b = group * blocks; b < (group + 1) * blocks; ++b) {
            convolve(run, packed, b, n0, n1, inputs, memory.worker(w), z);
          }
          for (int64_t n = n0; n < n1; ++n) {
            memory.norms[n * p.groups + group] = measure(run, n, group, z);
            finish(run, finisher, n, group * channels, channels, z);
          }
        }
      });
      return;
    }

    deal(parallel, threads_, lane_blocks_ * sample_sets, [&](int w, const auto& next) {
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t n0 = i / lane_blocks_ * kMostSamples, n1 = std::min(p.n, n0 + kMostSamples);
        convolve(run, packed, i % lane_blocks_, n0, n1, inputs, memory.worker(w), z);
      }
    });

    if (has_norm(p)) {
      deal(parallel, threads_, p.n * p.groups, [&](int, const auto& next) {
        for (int64_t i = next(); i >= 0; i = next()) memory.norms[i] = measure(run, i / p.groups, i % p.groups, z);
      });
    }
    // A few channels a task: there may be a single sample.
    const int64_t together = std::min<int64_t>(16, g_.half), sets = ceil_div(g_.half, together);
    deal(parallel, threads_, p.n * sets, [&](int w, const auto& next) {
      const Finisher finisher(run, memory.norms, 0, false, memory.worker(w));
      for (int64_t i = next(); i >= 0; i = next()) {
        const int64_t c = i % sets * together;
        finish(run, finisher, i / sets, c, std::min(together, g_.half - c), z);
      }
    });
  }

  // Channels [c, c + rows) of y from z, with a glu and their partners.
  void finish(const Run& run, const Finisher& finisher, int64_t n, int64_t c, int64_t rows, const float* z) const {
    const float* row = z + (n * g_.problem.o + c) * z_row();
    const int64_t l_out = run.l_out(n);
    finisher.rows(n, c, rows, 0, l_out, row, g_.halves == 2 ? row + g_.half * z_row() : nullptr, z_row());
    finisher.zero_tail(n, c, rows, l_out);
  }

  void convolve(const Run& run, const void* packed, int64_t b, int64_t n0, int64_t n1, const float* inputs, float* tile,
                float* z) const {
    const Problem& p = g_.problem;
    const int64_t sample = g_.sizes.l_out * lanes_, first = b * lanes_, lanes = std::min(lanes_, p.o - first);
    for (int64_t i = 0; i < (n1 - n0) * g_.sizes.l_out; ++i) {
      for (int64_t lane = 0; lane < lanes_; ++lane) {
        tile[i * lanes_ + lane] = run.parameters.bias && lane < lanes ? run.parameters.bias[first + lane] : 0.0f;
      }
    }
    const char* w = static_cast<const char*>(packed) + b * lanes_ * g_.steps * element_size(p.dtype);
    for (int64_t i = 0; i < g_.chunks(); ++i) {
      const Chunk chunk = g_.chunk(i);
      for (int64_t n = n0; n < n1; ++n) {
        const int64_t l_out = run.l_out(n);
        if (l_out == 0) continue;
        g_.kernels->conv_channels({.x = inputs + (n * g_.chunks() + i) * inputs_row(),
                                   .x_row = g_.x_row,
                                   .tap_offset = g_.tap_offset.data(),
                                   .channels = chunk.channels,
                                   .taps = chunk.taps,
                                   .w = w + chunk.steps_before * lanes_ * element_size(p.dtype),
                                   .w_dtype = p.dtype,
                                   .positions = l_out,
                                   .z = tile + (n - n0) * sample});
      }
    }
    for (int64_t n = n0; n < n1; ++n) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const int64_t o = first + lane, l_out = run.l_out(n);
        float* row = z + (n * p.o + o) * z_row();
        for (int64_t q = 0; q < l_out; ++q) row[q] = tile[(n - n0) * sample + q * lanes_ + lane];
        run.pre(o, row, l_out);
      }
    }
  }

  GroupNorm measure(const Run& run, int64_t n, int64_t group, const float* z) const {
    const int64_t channels = g_.sizes.o_per_norm_group;
    Moments total;
    for (int64_t o = group * channels; o < (group + 1) * channels; ++o) {
      merge(total, g_.kernels->row_moments(z + (n * g_.problem.o + o) * z_row(), run.l_out(n)));
    }
    return GroupNorm::from(total, g_.problem.eps);
  }

  int64_t lanes_, lane_blocks_;
};

}  // namespace

Answer consider_small_l(const PlanRequest& r) {
  const Problem& p = r.problem;
  const Kernels& kernels = *find_kernels(r.target);
  if (p.conv_groups != 1) return Refusal{"cg=" + std::to_string(p.conv_groups) + ": channels are not one block"};
  if (r.sizes.l_out > kMostPositions) {
    return Refusal{std::to_string(r.sizes.l_out) + " positions fill vectors along L (limit " +
                   std::to_string(kMostPositions) + ")"};
  }
  if (p.o < kernels.channel_block) {
    return Refusal{"o=" + std::to_string(p.o) + " does not fill a block of " + std::to_string(kernels.channel_block) +
                   " channels"};
  }
  auto executable = std::make_unique<SmallL>(r, kernels);
  if (Geometry(p, kernels, p.o).strip < r.sizes.l_out) {
    return Refusal{"d=" + std::to_string(p.dilation) + ": the inputs of all positions do not fit one strip"};
  }
  const int64_t bytes = static_cast<int64_t>(executable->workspace_bytes());
  if (bytes > kMostStoreBytes) {
    return Refusal{std::to_string(bytes >> 20) + " MiB of inputs and sums leave the caches (limit " +
                   std::to_string(kMostStoreBytes >> 20) + " MiB)"};
  }
  return accept_if_it_fits(std::move(executable));
}

}  // namespace convnorm::cpu
