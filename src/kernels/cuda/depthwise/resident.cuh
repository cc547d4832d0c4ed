// One launch in which rows, or pieces of them, stay with their warps from the statistics to the store. Outputs are
// formed once: in fp32 they take the place of the inputs, and 16-bit inputs lie so far behind that fp32 outputs never
// overtake what is still needed of them.
#pragma once

#include <type_traits>

#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/collective/exchange.cuh"
#include "kernels/cuda/depthwise/job.cuh"
#include "kernels/cuda/depthwise/row.cuh"
#include "kernels/cuda/depthwise/statistics.cuh"

namespace convnorm::cuda::depthwise {

// Moments of all lanes on their way to one: distances from one of the means in double. How many values there are, and
// its inverse, is known beforehand.
struct Merging {
  double reference, sum = 0, m2 = 0;

  // Of what the lanes add first.
  __device__ __forceinline__ explicit Merging(const Slot& first) {
    const unsigned filled = __ballot_sync(~0u, first.count > 0);
    reference = __shfl_sync(~0u, first.mean, filled == 0 ? 0 : __ffs(filled) - 1);
    add(first);
  }
  __device__ __forceinline__ void add(const Slot& m) {
    if (m.count == 0) return;
    const double distance = m.mean - reference, weighted = m.count * distance;
    sum += weighted;
    m2 += fma(weighted, distance, m.m2);
  }
  // Of the first `lanes`, the same in each of them; without the count.
  __device__ __forceinline__ Slot merged(int lanes, double inverse) {
#pragma unroll
    for (int mask = 1; mask < 32; mask <<= 1) {
      if (mask >= lanes) break;
      sum += __shfl_xor_sync(~0u, sum, mask);
      m2 += __shfl_xor_sync(~0u, m2, mask);
    }
    const double share = sum * inverse, left = fma(-sum, share, m2);
    return {0, reference + share, left < 0 ? 0 : left};  // NaN stays
  }
};

template <class T>
class ResidentRows {
 public:
  using Element = typename T::Element;
  using Values = float[T::kOutputs];

  __device__ __forceinline__ ResidentRows(const Parameters& p, unsigned char* shared)
      : p_(p),
        c_(p.config),
        a_(p.arguments),
        shared_(shared),
        warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        team_(static_cast<int>(c_.by_team.divide(blockIdx.x))),
        rank_(static_cast<int>(blockIdx.x) - team_ * c_.team),
        first_(
            min(static_cast<uint32_t>(rank_) * static_cast<uint32_t>(c_.share), static_cast<uint32_t>(c_.domain_jobs))),
        held_(static_cast<int>(min(static_cast<uint32_t>(c_.share), static_cast<uint32_t>(c_.domain_jobs) - first_))) {}

  __device__ __forceinline__ void run() {
    for (int round = 0; round < c_.rounds; ++round) {
      const uint32_t domain = static_cast<uint32_t>(round) * static_cast<uint32_t>(c_.teams) + team_;
      if (domain >= static_cast<uint32_t>(c_.domains)) break;
      request(domain, round);
      // The launch's number, while x is on its way.
      uint64_t tag = 0;
      if (threadIdx.x == kHelper && round == 0 && c_.team > 1) tag = ptx::load_relaxed(&p_.slot.header->tag);
      ptx::wait_copies<0>();
      __syncwarp();
      for (int held = warp_; held < held_; held += kWarps) {
#if __CUDA_ARCH__ >= 900
        wait(barrier(held), round % 2, "a row of x");
#endif
        measure(held);
      }
      if (threadIdx.x == kHelper) prepare(domain, round, tag);
      __syncthreads();
      if (threadIdx.x == kHelper && round == 0 && c_.team > 1) {
        first_tag_of_launch(p_.slot.header, tag, gridDim.x, c_.rounds);
      }
      if (warp_ == 0) agree(domain, round % 2);
      __syncthreads();
      for (int held = warp_; held < held_; held += kWarps) store_row(held);
    }
  }

 private:
  static constexpr unsigned kHelper = 32;  // a thread of the warp whose row comes first

  // What one warp finds out for all.
  struct Head {
    double mean, rstd;            // of the domain
    double inverse_own, inverse;  // 1 over the outputs of this CTA and of the domain; 0 where there are none
    uint64_t tag;                 // of the round
  };
  static_assert(sizeof(Head) <= kHeadBytes);
  static constexpr bool kFew = T::kWalk == Walk::kSteps;  // taps, as the plan has it
  // Squares that fp32 holds.
  static constexpr float kLeastSquares = 1e-25f, kMostSquares = 1e37f;
  // How the outputs of a row are walked along once they lie there: five neighbouring blocks.
  using Stored = Traits<Element, Walk::kSteps>;

  __device__ __forceinline__ Head& head() const { return *reinterpret_cast<Head*>(shared_); }
  __device__ __forceinline__ Slot* slots() const { return reinterpret_cast<Slot*>(shared_ + p_.plan.slots); }
  __device__ __forceinline__ uint32_t barrier(int held) const {
    return ptx::shared_address(shared_ + p_.plan.barriers) + static_cast<uint32_t>(sizeof(uint64_t)) * held;
  }
  __device__ __forceinline__ RowMoments* moments() const {
    return reinterpret_cast<RowMoments*>(shared_ + p_.plan.moments);
  }
  __device__ __forceinline__ Job* jobs() const { return reinterpret_cast<Job*>(shared_ + p_.plan.jobs); }
  __device__ __forceinline__ ChannelParameters* channels() const {
    return reinterpret_cast<ChannelParameters*>(shared_ + p_.plan.channels);
  }
  // Outputs of a job, as distances from the row's reference; the first one at Job::shift, as the first place of
  // `places`.
  __device__ __forceinline__ float* outputs(int held) const {
    return reinterpret_cast<float*>(shared_ + p_.plan.rows + held * p_.plan.row_bytes);
  }
  __device__ __forceinline__ Element* places(int held) const {
    return reinterpret_cast<Element*>(outputs(held)) + c_.x_at;
  }
  __device__ __forceinline__ float* weights(int held) const {
    return reinterpret_cast<float*>(shared_ + p_.plan.weights) + held * round_up(a_.k, 4);
  }
  __device__ __forceinline__ Row<Element> row(const Job& job, int held) const {
    return {places(held),
            weights(held),
            job.shift,
            static_cast<int>(a_.k),
            1,
            static_cast<int>(a_.dilation),
            p_.plan.row_bytes / static_cast<int>(sizeof(Element)) - c_.x_at,
            T::lane_at(lane_, c_.lanes, static_cast<int>(a_.dilation))};
  }

  __device__ __forceinline__ Job job_of(uint32_t domain, int held) const {
    return depthwise::job_of<Element>(p_, domain, first_ + static_cast<uint32_t>(held));
  }
  __device__ __forceinline__ RowSource<Element> source_of(const Job& job, int held) const {
    const auto input = static_cast<int>(c_.by_multiplier.divide(static_cast<uint32_t>(job.channel)));
    return RowSource<Element>(a_, job, input, places(held));
  }

  // What the warps will agree by, once this thread's row is measured.
  __device__ __forceinline__ void prepare(uint32_t domain, int round, uint64_t tag_before) const {
    Head& h = head();
    h.tag = (round > 0 ? h.tag : tag_before) + 1;
    const int64_t row = row_outputs(domain);
    const double own = count_of(rank_, row), all = static_cast<double>(a_.o_per_norm_group * row);
    h.inverse_own = own > 0 ? 1 / own : 0;
    h.inverse = all > 0 ? 1 / all : 0;
  }

  // The kernel ahead may still run while the launch begins; all wait for it before they read or write anything of the
  // caller's. Rows are copied in bulk, those of the first round by neighbouring lanes of one warp: so they arrive one
  // after the other, and the first are measured while the last are on their way.
  __device__ __forceinline__ void request(uint32_t domain, int round) {
    const uint64_t policy = ptx::evict_first_policy();
#if __CUDA_ARCH__ >= 900
    if (round == 0) {
      if (static_cast<int>(threadIdx.x) < held_) {
        ptx::mbarrier_init(barrier(static_cast<int>(threadIdx.x)), 1);
        ptx::fence_mbarrier_init();
      }
      __syncthreads();
      wait_for_predecessor();
      if (warp_ == 0) {
        // The engine takes them one after the other, and this warp waits for that: its own comes last.
        for (int i = lane_; i < held_; i += 32) {
          const int held = i + 1 < held_ ? i + 1 : 0;
          const RowSource<Element> source = source_of(job_of(domain, held), held);
          source.request_in_bulk(barrier(held), policy);
        }
        __syncwarp();
      }
    }
    if (round > 0) ptx::fence_proxy_async();  // what was read and written here comes before the next copy in bulk
#endif
    if (round > 0) __syncwarp();
    // Each lane one parameter of one of the warp's jobs, all at the same time.
    constexpr int kParameters = sizeof(ChannelParameters) / sizeof(float);
    static_assert(kMostHeld <= kWarps * 32 / kParameters);
    int lane = lane_;
    asm volatile("" : "+r"(lane));  // what follows is computed here, and not kept through all rounds
    const int own = warp_ + kWarps * (lane / kParameters), which = lane % kParameters;
    float parameter = 0;
    uint64_t fingerprint = 0;
    if (own < held_) {
      fingerprint = __ldg(reinterpret_cast<const unsigned long long*>(&a_.packed->fingerprint));
      parameter = given_parameter<Element>(a_, which, channel_of(p_, domain, first_ + static_cast<uint32_t>(own)));
    }
    for (int held = warp_; held < held_; held += kWarps) {
      const Job job = job_of(domain, held);
      if (lane_ == 0) jobs()[held] = job;
      const RowSource<Element> source = source_of(job, held);
#if __CUDA_ARCH__ >= 900
      if (round > 0 && lane_ == 0) source.request_in_bulk(barrier(held), policy);
#else
      source.request_vectors(lane_, policy);
#endif
      source.request_rest(a_, job, lane_);
      request_weights(a_, job, weights(held), lane_);
    }
    ptx::commit_copies();
    if (round == 0) let_successor_begin();
    if (own < held_) {
      const bool fault = which == 0 && fingerprint != a_.fingerprint;
      reinterpret_cast<float*>(channels() + own)[which] = fault ? __int_as_float(0x7fffffff) : parameter;
    }
  }

  // A mean of 32 outputs from all along the row: no value of the row is so far from its mean that squares of distances
  // from here would lose the spread.
  __device__ __forceinline__ float choose_reference(const Row<Element>& r, const ChannelParameters& c,
                                                    int valid) const {
    if (valid == 0) return 0;
    const int at = lane_ * (valid - 1) / 31;
    float v[1] = {c.bias};
#pragma unroll(kFew ? kFewTaps : 1)
    for (int k = 0; k < (kFew ? kFewTaps : r.taps); ++k)
      v[0] = fmaf(r.w[k], to_float(r.x[r.shift + at + k * r.dilation]), v[0]);
    apply_row_pre<Element>(a_, v, c.slope);
    return sum_warp(v[0] * (1.0f / 32));
  }

  // Outputs of a tile before the norm, as distances from the reference. It is subtracted from whole sums: sums that
  // began below the bias by it would round otherwise than it did, and equal values would not be at distance zero.
  template <bool kWhole, bool kPre>
  static __device__ __forceinline__ void compute(const Arguments& a, const Row<Element>& r, const ChannelParameters& c,
                                                 float reference, int positions, int base, Values& v) {
    T::template multiply<kWhole, kFew>(r, positions, base, c.bias, v);
    if constexpr (kPre) apply_row_pre<Element>(a, v, c.slope);
#pragma unroll
    for (int i = 0; i < T::kOutputs; ++i) v[i] -= reference;
  }
  // The two kinds of tiles have nothing in common that registers would have to be moved for.
  template <bool kPre>
  __device__ __forceinline__ void measure_tiles(const Row<Element>& r, const Job& job, const ChannelParameters& c,
                                                float reference, uint32_t target, Sums& sums) const {
    T::for_each_tile(r, job.valid, [&](int base) {
      Values v;
      if (is_whole<T>(r, base, job.valid)) {
        compute<true, kPre>(a_, r, c, reference, job.positions, base, v);
        sums.template add<T::kOutputs>(
            true, [&](int i) { return v[i]; }, [](int) { return true; });
        put<true>(r, job, target, base, v);
      } else {
        compute<false, kPre>(a_, r, c, reference, job.positions, base, v);
        sums.template add<T::kOutputs>(
            false, [&](int i) { return v[i]; },
            [&](int i) {
              const int at = T::position(r, base, i);
              return at >= 0 && at < job.valid;
            });
        put<false>(r, job, target, base, v);
      }
    });
  }

  // Outputs in place of inputs that nobody needs any more: later outputs have later inputs.
  template <bool kWhole>
  __device__ __forceinline__ void put(const Row<Element>& r, const Job& job, uint32_t target, int base,
                                      const Values& v) const {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < T::kVectors; ++j) {
      const int at = T::position(r, base, 4 * j);
      if (!kWhole && at >= job.valid) continue;
      ptx::store_shared_128(target + static_cast<uint32_t>(sizeof(float)) * static_cast<uint32_t>(at), v[4 * j],
                            v[4 * j + 1], v[4 * j + 2], v[4 * j + 3]);
    }
  }

  // In fp32 and, where that does not hold the squares, again in double.
  __device__ __forceinline__ void measure(int held) const {
    const Job job = jobs()[held];
    const ChannelParameters c = channels()[held];
    const Row<Element> r = row(job, held);
    const float reference = choose_reference(r, c, job.valid);
    const uint32_t target = ptx::shared_address(outputs(held) + job.shift);
    __syncwarp();
    Sums sums;
    if (a_.pre != CONVNORM_NONE) {
      measure_tiles<true>(r, job, c, reference, target, sums);
    } else {
      measure_tiles<false>(r, job, c, reference, target, sums);
    }
    const float sum = sum_warp((sums.sum[0] + sums.sum[1]) + (sums.sum[2] + sums.sum[3]));
    const float squares = sum_warp((sums.square[0] + sums.square[1]) + (sums.square[2] + sums.square[3]));
    // Otherwise fp32 does not hold the squares, or the reference is 16 deviations away and the spread is lost among
    // them.
    const bool narrow = job.valid == 0 || (squares > kLeastSquares && squares < kMostSquares &&
                                           sum * sum < squares * (static_cast<float>(job.valid) * (256.0f / 257)));
    if (!narrow) {
      const Slot wide = measure_in_double(outputs(held) + job.shift, reference, job.valid);
      if (lane_ == 0) slots()[held] = wide;
    }
    if (lane_ == 0) moments()[held] = {sum, squares, reference, narrow ? job.valid : -1};
  }

  // As measured in a place, or nothing.
  __device__ __forceinline__ Slot moments_of(int held) const {
    if (held >= held_) return {0, 0, 0};
    const RowMoments m = moments()[held];
    if (m.count < 0) return slots()[held];
    if (m.count == 0) return {0, 0, 0};
    const double inverse = m.count == c_.piece ? c_.inverse_piece : 1.0 / m.count;
    const double mean = m.sum * inverse, m2 = fma(-static_cast<double>(m.sum), mean, static_cast<double>(m.squares));
    return {static_cast<double>(m.count), static_cast<double>(m.reference) + mean, m2 < 0 ? 0 : m2};  // NaN stays
  }

  // Rare, and so not where its instructions would have to be fetched.
  static __device__ __noinline__ Slot measure_in_double(const float* distances, float reference, int valid) {
    __syncwarp();
    double mean = 0, m2 = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      double sum = 0;
      for (int i = static_cast<int>(threadIdx.x) % 32; i < valid; i += 32) {
        const double distance = static_cast<double>(distances[i]) - mean;
        sum += pass == 0 ? distance : distance * distance;
      }
      if (pass == 0) {
        mean = sum_warp(sum) / valid;
      } else {
        m2 = sum_warp(sum);
      }
    }
    return {static_cast<double>(valid), static_cast<double>(reference) + mean, m2};
  }

  // Valid outputs of a row of a domain.
  __device__ __forceinline__ int64_t row_outputs(uint32_t domain) const {
    if (a_.lengths == nullptr) return a_.l_out;
    return valid_outputs(a_, sample_length(a_, c_.by_sample_domains.divide(domain)));
  }

  // Outputs of a CTA's jobs, where a row has `row`.
  __device__ __forceinline__ double count_of(int cta, int64_t row) const {
    const auto share = static_cast<uint32_t>(c_.share), jobs = static_cast<uint32_t>(c_.domain_jobs);
    const uint32_t begin = min(static_cast<uint32_t>(cta) * share, jobs), end = min(begin + share, jobs);
    return positions_before(c_, end, row) - positions_before(c_, begin, row);
  }

  // The domain's norm, from the moments of this CTA's warps and of the team's other CTAs: the work of one warp.
  __device__ __forceinline__ void agree(uint32_t domain, int parity) const {
    Head& h = head();
    const uint64_t tag = h.tag;
    Merging merging(moments_of(lane_));
    if (held_ > 32) merging.add(moments_of(lane_ + 32));
    Slot m = merging.merged(held_, h.inverse_own);
    if (c_.team > 1) {
      ptx::Word* const words = p_.slot.words + (int64_t{team_} * 2 + parity) * c_.team;
      if (lane_ == 0) publish(words + rank_, tag, m.mean, m.m2 * h.inverse_own);
      const int64_t row = row_outputs(domain);
      Slot found[2];
      find(words, row, tag, 0, found);
      merging = Merging(found[0]);
      merging.add(found[1]);
      for (int first = 64; first < c_.team; first += 64) {
        find(words, row, tag, first, found);
        merging.add(found[0]), merging.add(found[1]);
      }
      __syncwarp();
      m = merging.merged(32, h.inverse);
    }
    const double rstd = inverse_sqrt(m.m2 * h.inverse + a_.eps);
    if (lane_ == 0) h.mean = m.mean, h.rstd = rstd;
  }

  // The moments of two CTAs from `first` on, of 64 by the warp, as soon as they have published them.
  __device__ __forceinline__ void find(const ptx::Word* words, int64_t row, uint64_t tag, int first,
                                       Slot (&found)[2]) const {
    ptx::Word word[2];
    bool wanted[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int cta = first + 32 * i + lane_;
      wanted[i] = cta < c_.team;
      found[i] = {wanted[i] ? count_of(cta, row) : 0, 0, 0};
      word[i].tag = wanted[i] ? 0 : tag;
    }
    Patience patience;
    while (true) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (wanted[i]) word[i] = ptx::load_relaxed(words + first + 32 * i + lane_);
      }
      const auto is_there = [&](int i) { return static_cast<uint32_t>(word[i].tag) == static_cast<uint32_t>(tag); };
      if (is_there(0) && is_there(1)) break;
      patience.lose("the moments of another CTA");
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (wanted[i]) found[i] = cuda::moments_of(word[i], found[i].count);
    }
  }

  __device__ __forceinline__ void store_row(int held) const {
    const Job job = jobs()[held];
    const ChannelParameters c = channels()[held];
    Row<Element> r = row(job, held);
    r.dilation = kBlock, r.lane_at = 4 * lane_;
    const float scale = norm_scale(head().rstd, c.gamma);
    const auto plus = static_cast<float>(fma(static_cast<double>(moments()[held].reference) - head().mean,
                                             static_cast<double>(scale), static_cast<double>(c.beta)));
    const float* const distances = outputs(held);
    const int last = p_.plan.row_bytes / static_cast<int>(sizeof(float)) - 4;
    const bool relu_alone = a_.post_count == 1 && a_.post[0].op == CONVNORM_RELU;
    Element* const y = output_of<Element>(a_, job);
    Stored::for_each_tile(r, job.positions, [&](int base) {
      float v[Stored::kOutputs];
      const bool all = is_whole<Stored>(r, base, job.valid);
      const auto take = [&](auto whole) {
#pragma unroll
        for (int j = 0; j < Stored::kVectors; ++j) {
          const int at = base + j * kBlock + r.lane_at;
          const float4 four = load_four(distances + (decltype(whole)::value ? at : min(at, last)));
          v[4 * j] = fmaf(four.x, scale, plus), v[4 * j + 1] = fmaf(four.y, scale, plus);
          v[4 * j + 2] = fmaf(four.z, scale, plus), v[4 * j + 3] = fmaf(four.w, scale, plus);
        }
      };
      if (all && relu_alone) {
        take(std::true_type{});
#pragma unroll
        for (int i = 0; i < Stored::kOutputs; ++i) v[i] = ptx::relu_of(v[i]);
#pragma unroll
        for (int j = 0; j < Stored::kVectors; ++j) store_four(v + 4 * j, y + Stored::position(r, base, 4 * j));
        return;
      }
      take(std::false_type{});
      apply_row_post<Element>(
          a_, 0, a_.post_count, reinterpret_cast<float(&)[1][Stored::kOutputs]>(v),
          [&](int) {
            return RowPlace{job.n, job.channel};
          },
          [&](int i) {
            const int at = Stored::position(r, base, i);
            return at < 0 || at >= job.valid ? int64_t{-1} : job.first + at;
          });
      if (all) {
#pragma unroll
        for (int j = 0; j < Stored::kVectors; ++j) {
          store_four(v + 4 * j, y + Stored::position(r, base, 4 * j));
        }
        return;
      }
#pragma unroll
      for (int i = 0; i < Stored::kOutputs; ++i) {
        if (Stored::position(r, base, i) >= job.valid) v[i] = 0;
      }
      store_tile<Stored>(r, base, job.positions, v, y);
    });
  }

  const Parameters& p_;
  const Config& c_;
  const Arguments& a_;
  unsigned char* const shared_;
  const int warp_, lane_, team_, rank_;
  const uint32_t first_;  // of the CTA's jobs among its domain's
  const int held_;
};

template <class T>
__global__ void __launch_bounds__(32 * kWarps, kPerSm) resident_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  ResidentRows<T>(p, shared).run();
}

}  // namespace convnorm::cuda::depthwise
