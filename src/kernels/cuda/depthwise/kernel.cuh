// One launch: rows of x to shared memory, statistics, exchange, and the same products once more on their way to y.
#pragma once

#include "kernels/cuda/any_arch/divide.cuh"
#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/collective/exchange.cuh"
#include "kernels/cuda/depthwise/job.cuh"
#include "kernels/cuda/depthwise/launch.cuh"
#include "kernels/cuda/depthwise/row.cuh"
#include "kernels/cuda/depthwise/statistics.cuh"

namespace convnorm::cuda::depthwise {

// What the norm does to a domain.
struct Norm {
  float mean_high, mean_low;
  double rstd;
};

__device__ __forceinline__ Norm norm_from(const Slot& m, double eps) {
  const auto high = static_cast<float>(m.mean);
  const double variance = m.count > 0 ? m.m2 / m.count : 0.0;
  return {high, static_cast<float>(m.mean - static_cast<double>(high)), inverse_sqrt(variance + eps)};
}

// Outputs of a tile before the norm; kWhole: all of them are outputs of the job.
template <class T, bool kWhole>
__device__ __forceinline__ void compute(const Arguments& a, const Row<typename T::Element>& r,
                                        const ChannelParameters& c, int positions, int base, float (&v)[T::kOutputs]) {
  T::template multiply<kWhole>(r, positions, base, c.bias, v);
  apply_row_pre<typename T::Element>(a, v, c.slope);
}

// Moments of a job whose squares leave fp32's range: mean, then squares, in double. Rare, and so not where its
// instructions would have to be fetched.
template <class T>
__device__ __noinline__ Slot measure_in_double(const Arguments& a, const Row<typename T::Element>& r,
                                               const ChannelParameters& c, int positions, int valid) {
  Slot m = {static_cast<double>(valid), 0, 0};
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    double sum = 0;
    T::for_each_tile(r, valid, [&](int base) {
      float v[T::kOutputs];
      compute<T, false>(a, r, c, positions, base, v);
#pragma unroll
      for (int i = 0; i < T::kOutputs; ++i) {
        const int at = T::position(r, base, i);
        const double distance = static_cast<double>(v[i]) - m.mean;
        if (at >= 0 && at < valid) sum += pass == 0 ? distance : distance * distance;
      }
    });
    if (pass == 0) {
      m.mean = sum_warp(sum) / m.count;
    } else {
      m.m2 = sum_warp(sum);
    }
  }
  return m;
}

template <class T>
class Cta {
 public:
  using Element = typename T::Element;
  using Values = float[T::kOutputs];

  __device__ __forceinline__ Cta(const Parameters& p, unsigned char* shared)
      : p_(p),
        c_(p.config),
        a_(p.arguments),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        team_(static_cast<int>(c_.by_team.divide(blockIdx.x))),
        rank_(static_cast<int>(blockIdx.x) - team_ * c_.team) {}

  __device__ __forceinline__ void run() {
    uint64_t tag = 0;
    for (int round = 0; round < c_.rounds; ++round) {
      const int64_t first = (int64_t{round} * c_.teams + team_) * c_.domains_per_cta;
      const int64_t domains = min(static_cast<int64_t>(c_.domains_per_cta), c_.domains - first);
      const int64_t jobs = domains > 0 ? domains * c_.domain_jobs : 0;
      first_domain_ = static_cast<uint32_t>(first);
      first_job_ = static_cast<uint32_t>(min(int64_t{rank_} * c_.share, jobs));
      end_job_ = static_cast<uint32_t>(min(int64_t{first_job_} + c_.share, jobs));
      // x is on its way before the launch's number is waited for.
      request_batch(a_.groups > 0 ? 0 : c_.batches - 1, round == 0);
      if (a_.groups > 0) {
        auto* shared_tag = reinterpret_cast<uint64_t*>(shared_);
        if (round == 0 && c_.team > 1 && threadIdx.x == 0) {
          *shared_tag = first_tag_of_launch(p_.slot.header, gridDim.x, c_.rounds);
        }
        measure();
        __syncthreads();
        if (c_.team > 1 && domains > 0) {
          if (round == 0) tag = *shared_tag;
          exchange(tag + round, round % 2);
          __syncthreads();
        }
      }
      store_all();
      __syncthreads();
    }
  }

 private:
  __device__ __forceinline__ Slot* slots() const { return reinterpret_cast<Slot*>(shared_ + p_.plan.slots); }
  __device__ __forceinline__ Slot* others() const { return reinterpret_cast<Slot*>(shared_ + p_.plan.others); }

  __device__ __forceinline__ Job* jobs() const { return reinterpret_cast<Job*>(shared_ + p_.plan.jobs); }
  __device__ __forceinline__ ChannelParameters* channels() const {
    return reinterpret_cast<ChannelParameters*>(shared_ + p_.plan.channels);
  }

  // The place in shared memory of job `held` of a batch.
  __device__ __forceinline__ Element* row_at(int held) const {
    return reinterpret_cast<Element*>(shared_ + p_.plan.rows + held * p_.plan.row_bytes);
  }
  __device__ __forceinline__ float* weights_at(int held) const {
    return reinterpret_cast<float*>(shared_ + p_.plan.weights) + held * round_up(a_.k, 4);
  }
  __device__ __forceinline__ Row<Element> row(const Job& j, int held) const {
    return {row_at(held),
            weights_at(held),
            j.shift,
            static_cast<int>(a_.k),
            static_cast<int>(a_.stride),
            static_cast<int>(a_.dilation),
            p_.plan.row_bytes / static_cast<int>(sizeof(Element)),
            T::lane_at(lane_, 5, static_cast<int>(a_.dilation))};
  }

  // This warp's jobs of a batch: body(place in shared memory, number).
  template <class Body>
  __device__ __forceinline__ void for_each_held(int batch, const Body& body) const {
    const uint32_t begin = first_job_ + static_cast<uint32_t>(batch) * c_.held;
    const int end = static_cast<int>(min(static_cast<uint32_t>(c_.held), end_job_ - min(begin, end_job_)));
    for (int held = warp_; held < end; held += kWarps) body(held, begin + held);
  }
  template <class Body>
  __device__ __forceinline__ void for_each_job(int batch, const Body& body) const {
    for_each_held(batch, [&](int held, uint32_t) {
      const Job j = jobs()[held];
      body(held, j);
    });
  }

  // Deciding what a job is costs divisions: it is done once, when the batch is requested. For the first batch this may
  // happen while the kernel before still runs, for which all wait before they read or write anything of the caller's.
  __device__ __forceinline__ void request_batch(int batch, bool is_first) {
    __syncwarp();  // all lanes have read what was there
    bool wanted = false, waits = is_first;
    const auto wait_once = [&] {
      if (waits) wait_for_predecessor();
      waits = false;
    };
    if (a_.lengths != nullptr) wait_once();
    for_each_held(batch, [&](int held, uint32_t i) {
      const Job j = job_of<Element>(p_, first_domain_, i);
      if (lane_ == 0) jobs()[held] = j;
      wait_once();
      const auto input = static_cast<int>(c_.by_multiplier.divide(static_cast<uint32_t>(j.channel)));
      const RowSource<Element> source(a_, j, input, row_at(held));
      source.request_vectors(lane_, policy());
      source.request_rest(a_, j, lane_);
      request_weights(a_, j, weights_at(held), lane_);
      wanted = wanted || held == own_parameter_of();
    });
    wait_once();
    if (is_first) let_successor_begin();
    ptx::commit_copies();
    __syncwarp();
    // Each lane one parameter of one of the warp's jobs, all at the same time.
    own_parameter_ = 0;
    if (wanted)
      own_parameter_ = channel_parameter<Element>(a_, lane_ % kParameters, jobs()[own_parameter_of()].channel);
  }

  // Whether each warp has one row, on chip from statistics to store.
  __device__ __forceinline__ bool one_row_a_warp() const {
    return a_.groups > 0 && c_.batches == 1 && c_.held <= kWarps;
  }

  // What is read once must not push out y, which is written back at leisure.
  __device__ __forceinline__ uint64_t policy() const {
    return c_.batches == 1 || a_.groups == 0 ? ptx::evict_first_policy() : ptx::evict_normal_policy();
  }

  __device__ __forceinline__ void await_batch(int batch) {
    ptx::wait_copies<0>();
    const uint32_t begin = first_job_ + static_cast<uint32_t>(batch) * c_.held;
    if (own_parameter_of() < c_.held && begin + own_parameter_of() < end_job_) {
      reinterpret_cast<float*>(channels() + own_parameter_of())[lane_ % kParameters] = own_parameter_;
    }
    __syncwarp();
  }

  // The place of the job of which this lane fetches a parameter.
  static constexpr int kParameters = sizeof(ChannelParameters) / sizeof(float);
  static_assert(kMostHeld <= kWarps * 32 / kParameters);
  __device__ __forceinline__ int own_parameter_of() const { return warp_ + kWarps * (lane_ / kParameters); }

  // Returns whether all outputs of the tile lie in [0, end).
  __device__ __forceinline__ bool compute(const Row<Element>& r, const ChannelParameters& c, int positions, int end,
                                          int base, Values& v) const {
    const bool all = is_whole<T>(r, base, end);
    if (all) {
      depthwise::compute<T, true>(a_, r, c, positions, base, v);
    } else {
      depthwise::compute<T, false>(a_, r, c, positions, base, v);
    }
    return all;
  }

  // Whether a job is one tile whose outputs stay in registers between statistics and norm.
  __device__ __forceinline__ bool keeps(const Row<Element>& r, int positions) const {
    return T::kKeeps && one_row_a_warp() && positions + r.shift <= 32 * T::kOutputs;
  }

  // In fp32 and, where that does not hold the squares, again in double.
  __device__ __forceinline__ Slot measure_job(const Job& j, int held) {
    const Row<Element> r = row(j, held);
    const ChannelParameters c = channels()[held];
    Sums sums;
    float reference = 0;
    bool has_reference = false;
    T::for_each_tile(r, j.valid, [&](int base) {
      Values v;
      const bool all = compute(r, c, j.positions, j.valid, base, v);
      if constexpr (T::kKeeps) {
#pragma unroll
        for (int i = 0; i < T::kOutputs; ++i) kept_[i] = v[i];
      }
      const auto is_valid = [&](int i) {
        const int at = T::position(r, base, i);
        return at >= 0 && at < j.valid;
      };
      if (!has_reference) {
        if (all) {
          has_reference = true, reference = typical(v);
        } else {
          has_reference = choose_reference(v, is_valid, reference);
        }
      }
      sums.template add<T::kOutputs>(
          all, [&](int i) { return v[i] - reference; }, is_valid);
    });
    const Slot narrow = sums.merged(reference, j.valid);
    if (!beyond_fp32(narrow, reference)) return narrow;
    return measure_in_double<T>(a_, r, c, j.positions, j.valid);
  }

  // The middle one of three values of a whole tile: those at its beginning, and in a short row those at its end, are
  // set apart by the padding.
  static __device__ __forceinline__ float typical(const Values& v) {
    const float a = __shfl_sync(~0u, v[T::kOutputs - 1], 15), b = __shfl_sync(~0u, v[T::kOutputs - 1], 23);
    const float c = __shfl_sync(~0u, v[T::kOutputs - 1], 31);
    return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
  }

  // A valid value, from the middle where that lane has one, the same for all lanes. False if there is none yet.
  template <class IsValid>
  static __device__ __forceinline__ bool choose_reference(const Values& v, const IsValid& is_valid, float& reference) {
    bool own = false;
#pragma unroll
    for (int i = 0; i < T::kOutputs; ++i) {
      if (!own && is_valid(i)) reference = v[i], own = true;
    }
    const unsigned lanes = __ballot_sync(~0u, own);
    if (lanes == 0) return false;
    const int first = __ffs(lanes) - 1, middle = (first + 31 - __clz(lanes)) / 2;
    reference = __shfl_sync(~0u, reference, lanes >> middle & 1 ? middle : first);
    return true;
  }

  // Statistics of this CTA's jobs: of each warp's where they belong to one domain, else of each job's.
  __device__ __forceinline__ void measure() {
    const bool apart = c_.domains_per_cta > 1;
    Slot own = {0, 0, 0};
    for (int batch = 0; batch < c_.batches; ++batch) {
      if (batch > 0) request_batch(batch, false);
      await_batch(batch);
      for_each_job(batch, [&](int held, const Job& j) {
        const Slot m = measure_job(j, held);
        if (apart) {
          if (lane_ == 0) slots()[held] = m;
        } else if (m.count > 0) {
          const double all = own.count + m.count, distance = m.mean - own.mean;
          own.m2 += m.m2 + distance * distance * (own.count * (m.count / all));
          own.mean += distance * (m.count / all);
          own.count = all;
        }
      });
    }
    if (!apart && lane_ == 0) slots()[warp_] = own;
  }

  // Every CTA's moments to every CTA of the team.
  __device__ __forceinline__ void exchange(uint64_t tag, int parity) const {
    ptx::Word* words = p_.slot.words + (int64_t{team_} * 2 + parity) * 2 * c_.team;
    if (warp_ == 0) {
      const Slot own = merge_slots(slots(), kWarps, lane_);
      if (lane_ < 2) publish(words + 2 * rank_ + lane_, tag, lane_ == 0 ? own.mean : own.m2);
    }
    const int64_t n = c_.by_sample_domains.divide(first_domain_);
    const int64_t valid = valid_outputs(a_, sample_length(a_, n));
    for (int i = static_cast<int>(threadIdx.x); i < c_.team; i += 32 * kWarps) {
      const auto begin = static_cast<uint32_t>(min(i * c_.share, c_.domain_jobs));
      const auto end = static_cast<uint32_t>(min(begin + c_.share, c_.domain_jobs));
      Slot other;
      other.count = positions_before(c_, end, valid) - positions_before(c_, begin, valid);
      await_doubles(words + 2 * i, tag, other.mean, other.m2);
      others()[i] = other;
    }
  }

  // The batch that was measured last is still there.
  __device__ __forceinline__ void store_all() {
    Norm norm = {0, 0, 0};
    const bool apart = c_.domains_per_cta > 1;
    if (a_.groups > 0 && !apart) {
      norm =
          norm_from(c_.team > 1 ? merge_slots(others(), c_.team, lane_) : merge_slots(slots(), kWarps, lane_), a_.eps);
    }
    for (int batch = c_.batches - 1; batch >= 0; --batch) {
      if (batch < c_.batches - 1) request_batch(batch, false);
      if (a_.groups == 0 || batch < c_.batches - 1) await_batch(batch);
      for_each_job(batch, [&](int held, const Job& j) {
        if (a_.groups > 0 && apart) {
          const int first = held / static_cast<int>(c_.domain_jobs) * static_cast<int>(c_.domain_jobs);
          norm = norm_from(merge_slots(slots() + first, static_cast<int>(c_.domain_jobs), lane_), a_.eps);
        }
        store_job(j, held, norm);
      });
    }
  }

  __device__ __forceinline__ void store_job(const Job& j, int held, const Norm& norm) const {
    const Row<Element> r = row(j, held);
    const ChannelParameters c = channels()[held];
    float scale = 1, plus = 0;
    if (a_.groups > 0) {
      scale = norm_scale(norm.rstd, c.gamma);
      plus = static_cast<float>(fma(-static_cast<double>(norm.mean_low), static_cast<double>(scale), double{c.beta}));
    }
    Element* const y = output_of<Element>(a_, j);
    T::for_each_tile(r, j.positions, [&](int base) {
      Values v;
      bool all;
      if (keeps(r, j.positions)) {
        all = is_whole<T>(r, base, j.valid);
#pragma unroll
        for (int i = 0; i < T::kOutputs; ++i) v[i] = kept_[T::kKeeps ? i : 0];
      } else {
        all = compute(r, c, j.positions, j.valid, base, v);
      }
      if (a_.groups > 0) {
#pragma unroll
        for (int i = 0; i < T::kOutputs; ++i) v[i] = fmaf(v[i] - norm.mean_high, scale, plus);
      }
      apply_row_post<Element>(
          a_, 0, a_.post_count, reinterpret_cast<float(&)[1][T::kOutputs]>(v),
          [&](int) {
            return RowPlace{j.n, j.channel};
          },
          [&](int i) {
            const int at = T::position(r, base, i);
            return at < 0 || at >= j.valid ? int64_t{-1} : j.first + at;
          });
      if (all && T::kInVectors) {
#pragma unroll
        for (int i = 0; i < T::kVectors; ++i) store_four<Element>(v + 4 * i, y + T::position(r, base, 4 * i));
        return;
      }
#pragma unroll
      for (int i = 0; i < T::kOutputs; ++i) {
        if (T::position(r, base, i) >= j.valid) v[i] = 0;
      }
      store_tile<T>(r, base, j.positions, v, y);
    });
  }

  const Parameters& p_;
  const Config& c_;
  const Arguments& a_;
  unsigned char* const shared_;
  const int warp_, lane_, team_, rank_;
  float own_parameter_ = 0;                  // on its way to channels()
  float kept_[T::kKeeps ? T::kOutputs : 1];  // of the last tile that was measured
  uint32_t first_domain_ = 0;
  uint32_t first_job_ = 0, end_job_ = 0;  // of the team's, this CTA's
};

template <class T>
__global__ void __launch_bounds__(32 * kWarps, kPerSm) depthwise_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  Cta<T>(p, shared).run();
}

}  // namespace convnorm::cuda::depthwise
