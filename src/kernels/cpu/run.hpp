// One execution: the tensors as the kernels want them, the cutting of scratch memory, and the dealing of tasks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "hwy/cache_control.h"
#include "kernels/cpu/caches.hpp"
#include "kernels/cpu/geometry.hpp"
#include "plan/plan.hpp"

namespace convnorm::cpu {

// Cuts aligned pieces from a block of memory; with a null block it only counts.
class Arena {
 public:
  explicit Arena(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    char* at = base_ ? base_ + used_ : nullptr;
    used_ += static_cast<size_t>(round_up(count * static_cast<int64_t>(sizeof(T)), 64));
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

// What the norm does to a group: (z - mean) * rstd, the mean in two parts.
struct GroupNorm {
  float mean_high = 0, mean_low = 0;
  double rstd = 1;

  static GroupNorm from(const Moments& m, double eps);
};

// Parameters as fp32, converted into the workspace where the caller's are 16-bit.
struct Parameters {
  const float* bias = nullptr;
  const float* gamma = nullptr;
  const float* beta = nullptr;
  const float* pre_slope = nullptr;
  const float* post_slope = nullptr;
  const float* film_scale = nullptr;
  const float* film_shift = nullptr;

  // Reserves room in `arena` where conversion is needed. With `tensors` the values are filled in.
  Parameters(const Problem& problem, const Kernels& kernels, const convnorm_tensors* tensors, Arena& arena);
};

struct Run {
  const Geometry& g;
  const convnorm_tensors& tensors;
  const Parameters& parameters;

  int64_t length(int64_t n) const { return tensors.lengths ? tensors.lengths[n] : g.problem.l; }
  int64_t l_out(int64_t n) const {
    return tensors.lengths ? std::max<int64_t>(0, output_length(g.problem, tensors.lengths[n])) : g.sizes.l_out;
  }
  // The op between convolution and norm, on one row of channel o.
  void pre(int64_t o, float* row, int64_t count) const;
};

// Everything from the norm to the stored y, one row segment of at most kStatisticsBlock values at a time.
class Finisher {
 public:
  static constexpr int64_t kScratchFloats = 3 * kStatisticsBlock;

  // `norms`: (samples from first_sample on, G). `stream`: store past the caches.
  Finisher(const Run& run, const GroupNorm* norms, int64_t first_sample, bool stream, float* scratch);

  // Outputs [begin, begin + count) of channel c of y, from z of channel c and, with a glu, of its partner.
  void operator()(int64_t n, int64_t c, int64_t begin, int64_t count, const float* z, const float* partner) const;
  // The same for `rows` neighbouring channels and any count; row r at z + r * z_row.
  void rows(int64_t n, int64_t c, int64_t rows, int64_t begin, int64_t count, const float* z, const float* partner,
            int64_t z_row) const;
  // Zeros from `begin` on, where a sample ends before L_out.
  void zero_tail(int64_t n, int64_t c, int64_t rows, int64_t begin) const;

 private:
  // Parameter of a pointwise op, or the slope of channel o.
  float argument(const convnorm_stage& stage, int64_t o) const;
  void transform(int64_t n, int64_t o, int64_t begin, int64_t count, const float* z, float* out) const;
  void apply(int first, int last, int64_t n, int64_t o, int64_t begin, int64_t count, float* row) const;

  const Run& run_;
  const GroupNorm* norms_;
  int64_t first_sample_;
  bool stream_;
  bool rides_;   // the first post op is applied together with the norm
  bool direct_;  // y's rows are fp32 and contiguous: no row of our own in between
  int glu_;      // index of the glu among the post ops; their count without one
  float* row_;
  float* partner_row_;
  float* other_;
};

// Merges the partial moments (C_out, blocks) of sample n into the norm of one group.
GroupNorm merge_group(const Run& run, const Moments* partial, int64_t partial_blocks, int64_t n, int64_t group);

// Runs worker(w, next) on at most `threads` workers; next() deals the tasks [0, tasks) and -1 when they are used up.
template <class Worker>
void deal(const Parallel& parallel, int threads, int64_t tasks, const Worker& worker) {
  if (tasks <= 0) return;
  std::atomic<int64_t> counter{0};
  const auto next = [&]() -> int64_t {
    const int64_t task = counter.fetch_add(1, std::memory_order_relaxed);
    return task < tasks ? task : -1;
  };
  parallel(static_cast<int>(std::min<int64_t>(threads, tasks)), [&](int w) {
    worker(w, next);
    hwy::FlushStream();
  });
}

// Whether y is too large to be kept in the caches for whoever reads it next.
bool store_past_caches(const Geometry& g);

}  // namespace convnorm::cpu
