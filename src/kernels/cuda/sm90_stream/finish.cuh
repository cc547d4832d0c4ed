// From partial sums to y. A warp finishes one unit: a slice of the tile's rows, one sample.
//
// A lane holds kPerLane neighbouring positions of one row; 2^(1 + slices_log2) lanes share a row. So a channel's
// parameters are one register each, and statistics are shuffles. One warp alone runs this code once, so its time is
// that of a chain of instructions: everything that can be known beforehand comes from the host or before the weights.
// What policies need, straight() does with hardly a jump: the instruction cache is cold, and each jump waits for it.
#pragma once

#include "kernels/cuda/collective/exchange.cuh"
#include "kernels/cuda/collective/requested.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/sm90_stream/traits.cuh"

namespace convnorm::cuda::sm90_stream {

// As spread_of(), with the common case in a straight line: here every cycle counts, and registers are at hand.
template <class Measure>
__device__ __forceinline__ Spread spread_in_line(bool counts, const Measure& measure) {
  const Scale one(0);
  const Moments m = measure(one);
  if (__any_sync(~0u, counts && one.others(m) != 0)) return spread_of(counts, measure);
  return one.spread(m);
}

// With the moments of the lane `mask` away, which has the same count: Chan's formula, which then is symmetric.
__device__ __forceinline__ Moments merge_equal(const Moments& own, int mask) {
  const float mean = __shfl_xor_sync(~0u, own.mean, mask), m2 = __shfl_xor_sync(~0u, own.m2, mask);
  const float distance = mean - own.mean;
  return {2 * own.count, 0.5f * own.mean + 0.5f * mean, own.m2 + m2 + distance * distance * (0.5f * own.count)};
}

// A warp's values times `factor`, all of one group and all of account.
__device__ __forceinline__ Moments moments_of_warp(const float (&values)[kPerLane], float factor) {
  static_assert(kPerLane == 4);
  float v[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) v[i] = values[i] * factor;
  Moments m = {kPerLane, 0.25f * ((v[0] + v[1]) + (v[2] + v[3])), 0};
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) v[i] -= m.mean;
  m.m2 = fmaf(v[0], v[0], v[1] * v[1]) + fmaf(v[2], v[2], v[3] * v[3]);
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) m = merge_equal(m, mask);
  return m;
}

// One unit's moments in each of `lanes` lanes, a power of two, and again in the next ones. Up to eight, as a cluster
// has, without a jump.
__device__ __forceinline__ Moments moments_of_lanes(Moments m, int lanes) {
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) {
    if (mask == kMostCluster && lanes <= kMostCluster) break;
    const Moments merged = merge_equal(m, mask);
    const bool two = mask < lanes;
    m = {two ? merged.count : m.count, two ? merged.mean : m.mean, two ? merged.m2 : m.m2};
  }
  return m;
}

// What straight() meets only where values leave fp32's range, and ops other than those of policies. Functions of their
// own, because code that is jumped over costs as much as code that is run.
struct FourValues {
  float v[kPerLane];
};
static __device__ __noinline__ Spread spread_of_warp(FourValues values) {
  return spread_of(true, [&](const Scale& scale) { return moments_of_warp(values.v, scale.factor()); });
}
static __device__ __noinline__ Spread spread_of_lanes(Spread unit, int lanes) {
  return spread_of(true, [&](const Scale& scale) { return moments_of_lanes(scale.moments(unit), lanes); });
}
static __device__ __noinline__ float rstd_at_scale(Spread group, double eps) { return rstd_of(group, eps); }
static __device__ __noinline__ FourValues apply_other(FourValues values, convnorm_op op, float parameter) {
  detail::apply_formula(op, values.v, [&](int) { return parameter; });
  return values;
}

template <class T>
class Finish {
 public:
  using Element = typename T::Element;
  using Values = float[kPerLane];

  // What straight() can know beforehand; places in shared memory by their shared addresses.
  struct Places {
    uint32_t barriers;              // of this CTA
    uint32_t sums;                  // first warp's of a unit: its own, or where CTAs share a tile the one that it sends
    uint32_t to, to_barrier;        // where CTAs share a tile
    uint32_t moments, own_moments;  // of the unit that this lane reads; this unit's
    Element* y;
    int exchange, merging_lanes;
    float inverse_count, eps;
    int mish, film, add;  // whether the list begins with these, of which each may lack
    int others;           // the first op after them
  };

  __device__ __forceinline__ Finish(const Parameters& p, unsigned char* shared, int tile, int k_slice, int warp,
                                    int lane)
      : t_(p.tail), p_(p), shared_(shared), k_slice_(k_slice), warp_(warp), lane_(lane) {
    n_ = warp >> t_.own_slices_log2;
    slice_ = (k_slice << t_.own_slices_log2) + (warp & ((1 << t_.own_slices_log2) - 1));
    const int lane_row = lane >> (1 + t_.slices_log2);
    row_ = slice_ * t_.unit_rows + lane_row;
    position_ = (lane - (lane_row << (1 + t_.slices_log2))) * kPerLane;
    channel_ = tile * t_.tile_channels + row_;
    has_unit_ = n_ < p.front.tile_samples;
    sample_ = first_sample(p.front) + n_;
    inside_ = n_ < samples_of_tile(p.front) && row_ < t_.tile_channels && channel_ < t_.o;
  }

  __device__ __forceinline__ bool has_unit() const { return has_unit_; }

  // While the weights are on their way. Touches the lines of what is needed later.
  __device__ __forceinline__ void request_parameters() {
    request(bias_, t_.bias, channel_);
    if (t_.group_channels != 0) {
      // Where groups share no tile, a row of the grid holds one.
      const int first = t_.group_channels >= t_.tile_channels ? static_cast<int>(blockIdx.y) * t_.group_channels
                                                              : channel_ - channel_ % t_.group_channels;
      request(base_, t_.bias, first);
    }
    request(gamma_, t_.gamma, channel_);
    request(beta_, t_.beta, channel_);
    asm volatile("" ::"l"(t_.y), "l"(t_.shift), "r"(t_.post[0].op), "f"(t_.post[3].param));
    if (t_.pre_slope != nullptr) request(pre_slope_, t_.pre_slope, t_.pre_slope_per_channel ? channel_ : 0);
    if (t_.slope != nullptr) request(slope_, t_.slope, t_.slope_per_channel ? channel_ : 0);
    if (t_.scale != nullptr) {
      request(scale_, t_.scale, sample_ * t_.o + channel_);
      request(shift_, t_.shift, sample_ * t_.o + channel_);
    }
    if (t_.residual != nullptr) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const Element* from = static_cast<const Element*>(t_.residual) + y_offset() + i;
        const bool wanted = inside_ && position_ + i < t_.l_out;
        if constexpr (sizeof(Element) == 4) {
          ptx::load_32(from, wanted, residual_[i]);
        } else {
          ptx::load_16(from, wanted, residual_[i]);
        }
      }
    }
  }

  // The same for straight(), without a jump.
  __device__ __forceinline__ void request_in_line() {
    const bool wanted = has_unit_ && inside_;
    const int in_group = t_.group_channels >= kTileRows ? static_cast<int>(blockIdx.y) * t_.group_channels
                                                        : channel_ & -t_.group_channels;
    const int of_sample = sample_ * t_.o + channel_;
    bias_.request(t_.bias, channel_, t_.param_dtype, wanted);
    base_.request(t_.bias, in_group, t_.param_dtype, wanted && t_.group_channels != 0);
    gamma_.request(t_.gamma, channel_, t_.param_dtype, wanted);
    beta_.request(t_.beta, channel_, t_.param_dtype, wanted);
    slope_.request(t_.slope, t_.slope_per_channel ? channel_ : 0, t_.param_dtype, wanted);
    scale_.request(t_.scale, of_sample, t_.param_dtype, wanted);
    shift_.request(t_.shift, of_sample, t_.param_dtype, wanted);
    const Element* residual = static_cast<const Element*>(t_.residual) + y_offset();
    const bool adds = wanted && t_.residual != nullptr && position_ < t_.l_out;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if constexpr (sizeof(Element) == 4) {
        ptx::load_32(residual + i, adds, residual_[i]);
      } else {
        ptx::load_16(residual + i, adds, residual_[i]);
      }
    }
  }

  // While the weights are on their way, and held in registers, as the compiler would compute them where they are used.
  __device__ __forceinline__ Places places() const {
    Places p;
    p.barriers = ptx::shared_address(shared_);
    const int k_log2 = p_.front.k_slices_log2, lane_row = lane_ >> (1 + t_.slices_log2);
    const int n = k_log2 == 0 ? n_ : warp_ >> t_.slices_log2;
    const int slice = k_log2 == 0 ? slice_ : warp_ & ((1 << t_.slices_log2) - 1);
    const int row = slice * t_.unit_rows + lane_row;
    const int column = (n << p_.front.positions_log2) + (position_ & (t_.l_out - 1));
    p.sums = p.barriers + ring_offset(p_.front) + (row * 8 * T::kTiles8 + column) * 4;
    const uint32_t rank = ptx::cluster_rank(), owner = (rank & -(1 << k_log2)) + (slice >> t_.own_slices_log2);
    const int unit = (n << t_.own_slices_log2) + (slice & ((1 << t_.own_slices_log2) - 1));
    p.to = ptx::map_to_rank(p.barriers + received_offset(unit, k_slice_), owner);
    p.to_barrier = ptx::map_to_rank(p.barriers + kSumsBarrier, owner);
    const int cluster_unit = static_cast<int>(rank >> k_log2 << t_.slices_log2) + slice_;
    const int first = t_.group_units == t_.cluster_units ? 0 : cluster_unit & -t_.group_units;
    const uint32_t moments = p.barriers + t_.moments + n_ * t_.cluster_units * kMomentsBytes;
    p.own_moments = moments + cluster_unit * kMomentsBytes;
    p.moments = moments + (first + (lane_ & (t_.merging_lanes - 1))) * kMomentsBytes;
    p.y = static_cast<Element*>(t_.y) + y_offset();
    p.others = 0;
    p.mish = takes(CONVNORM_MISH, p.others), p.film = takes(CONVNORM_FILM, p.others);
    p.add = takes(CONVNORM_ADD, p.others);
    p.exchange = t_.exchange, p.merging_lanes = t_.merging_lanes;
    p.inverse_count = t_.inverse_count, p.eps = t_.eps_f32;
    asm volatile("" : "+r"(p.barriers), "+r"(p.sums), "+r"(p.to), "+r"(p.to_barrier), "+r"(p.moments));
    asm volatile("" : "+r"(p.own_moments), "+l"(p.y), "+f"(p.inverse_count), "+f"(p.eps));
    asm volatile("" : "+r"(p.exchange), "+r"(p.merging_lanes), "+r"(p.mish), "+r"(p.film), "+r"(p.add), "+r"(p.others));
    return p;
  }

  // send_sums() and unit() where all lanes of a unit hold values of one group.
  __device__ __forceinline__ void straight(const Places& at, float fault) const {
    Values v;
    if (p_.front.k_slices_log2 == 0) {
      if (!has_unit_) return;
      add_warps(v, at.sums);
    } else {
      if (warp_ >= p_.front.tile_samples << t_.slices_log2) return;
      add_warps(v, at.sums);
      ptx::store_async(at.to, v, at.to_barrier);
      if (!has_unit_) return;
      const uint32_t received = at.barriers + received_offset(warp_, 0);
      wait_cluster(at.barriers + kSumsBarrier, "the sums of other CTAs");
      set(v, ptx::load_shared_128(received));
      add(v, ptx::load_shared_128(received + kUnitBytes));
#pragma unroll 1
      for (int k = 2; k < 1 << p_.front.k_slices_log2; ++k) add(v, ptx::load_shared_128(received + k * kUnitBytes));
    }
    const float bias = bias_.value(t_.param_dtype) - base_.value(t_.param_dtype) + fault;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) v[i] += bias;

    const Moments measured = moments_of_warp(v, 1);
    Spread group = {measured.count, measured.mean, measured.m2};
    if (!Scale::in_range(measured.m2)) group = spread_of_warp({v[0], v[1], v[2], v[3]});
    if (at.exchange != static_cast<int>(Exchange::kNone)) group = straight_exchange(at, group);

    float rstd = inverse_sqrt(fmaf(group.m2, at.inverse_count, at.eps));
    if (!Scale::in_range(group.m2)) rstd = rstd_at_scale(group, t_.eps);
    const float by = t_.gamma == nullptr ? rstd : rstd * gamma_.value(t_.param_dtype);
    const float plus = beta_.value(t_.param_dtype);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) v[i] = fmaf(v[i] - group.mean, by, plus);

    if (at.mish) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) v[i] = Formulas<DeviceMath>::mish(v[i], 0);
    }
    const float film_by = scale_.value(t_.param_dtype), film_plus = shift_.value(t_.param_dtype);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      v[i] = at.film ? fmaf(v[i], film_by, film_plus) : v[i];
      v[i] = at.add ? v[i] + element_value(residual_[i]) : v[i];
    }
#pragma unroll 1
    for (int s = at.others; s < t_.post_count; ++s) straight_post(v, t_.post[s]);
    if (inside_ && position_ < t_.l_out) store_vector(at.y, v);
  }

  // Partial sums of all units of the tile, of which warps take turns, to the CTAs that finish them.
  __device__ __forceinline__ void send_sums() const {
    const uint32_t base = ptx::cluster_rank() & -(1 << p_.front.k_slices_log2);
#pragma unroll 1
    for (int i = warp_; i < p_.front.tile_samples << t_.slices_log2; i += kWarps) {
      const int n = i >> t_.slices_log2, slice = i & ((1 << t_.slices_log2) - 1);
      const uint32_t owner = base + (slice >> t_.own_slices_log2);
      const int unit = (n << t_.own_slices_log2) + (slice & ((1 << t_.own_slices_log2) - 1));
      Values v;
      own_sums(v, n, slice);
      ptx::store_async(ptx::map_to_rank(ptx::shared_address(received_at(unit, k_slice_)), owner), v,
                       ptx::map_to_rank(ptx::shared_address(shared_), owner));
    }
  }

  __device__ __forceinline__ void unit(float fault) const {
    Values v;
    if (p_.front.k_slices_log2 == 0) {
      own_sums(v, n_, slice_);
    } else {
      wait_cluster(ptx::shared_address(shared_), "the sums of other CTAs");
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) v[i] = 0;
      const float* from = received_at(warp_, 0);
#pragma unroll 1
      for (int k = 0; k < 1 << p_.front.k_slices_log2; ++k) add(v, from + k * (32 * kPerLane));
    }
    // What the biases of a group share the norm would take out again, and a large one costs digits.
    const float bias = bias_.value(t_.param_dtype) - base_.value(t_.param_dtype) + fault;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) v[i] += bias;
    if (t_.has_pre) {
      // relu is prelu with a slope of 0, except that it keeps no minus.
      const float slope = pre_slope_.value(t_.param_dtype);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if (v[i] < 0) v[i] = t_.pre_slope == nullptr ? 0.0f : v[i] * slope;
      }
    }
    if (t_.has_norm) normalise(v);
    post(v);
    if (inside_) store(v);
  }

 private:
  // Whether op `next` of the list is this one, which then is behind.
  __device__ __forceinline__ bool takes(convnorm_op op, int& next) const {
    const bool here = next < t_.post_count && t_.post[next].op == op;
    next += here;
    return here;
  }

  __device__ __forceinline__ void request(Requested<Element>& to, const void* tensor, int index) const {
    to.request(tensor, index, t_.param_dtype, inside_);
  }

  // The planner sees to it that 32 bits are enough.
  __device__ __forceinline__ uint32_t y_offset() const {
    return static_cast<uint32_t>((sample_ * t_.o + channel_) * t_.l_out + position_);
  }

  static __device__ __forceinline__ void wait_cluster(uint32_t barrier, const char* what) {
    Patience patience;
    while (!ptx::mbarrier_try_wait_cluster(barrier, 0)) patience.lose(what);
  }

  __device__ __forceinline__ int received_offset(int unit, int from) const {
    return t_.received + (((unit << p_.front.k_slices_log2) + from) * 32 + lane_) * kPerLane * 4;
  }
  __device__ __forceinline__ float* received_at(int unit, int from) const {
    return reinterpret_cast<float*>(shared_ + received_offset(unit, from));
  }

  static __device__ __forceinline__ void set(Values& v, const float4& to) {
    v[0] = to.x, v[1] = to.y, v[2] = to.z, v[3] = to.w;
  }
  static __device__ __forceinline__ void add(Values& v, const float4& more) {
    v[0] += more.x, v[1] += more.y, v[2] += more.z, v[3] += more.w;
  }

  // The sums of all warps of this CTA, those of the first at `address`.
  static __device__ __forceinline__ void add_warps(Values& v, uint32_t address) {
    float4 of[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) of[w] = ptx::load_shared_128(address + w * T::kRingBytes);
    set(v, of[0]);
#pragma unroll
    for (int w = 1; w < kWarps; ++w) add(v, of[w]);
  }

  static __device__ __forceinline__ void add(Values& v, const float* from) {
    static_assert(kPerLane == 4);
    add(v, *reinterpret_cast<const float4*>(from));
  }

  // Of all warps of this CTA.
  __device__ __forceinline__ void own_sums(Values& v, int n, int slice) const {
    const int row = slice * t_.unit_rows + (lane_ >> (1 + t_.slices_log2));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) v[i] = 0;
    // Where rows have more lanes than positions, the last lanes read those of another sample, and drop them later.
    const int column = min((n << p_.front.positions_log2) + position_, 8 * T::kTiles8 - kPerLane);
    const auto* from = reinterpret_cast<const float*>(shared_ + ring_offset(p_.front)) + row * 8 * T::kTiles8 + column;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) add(v, from + w * (T::kRingBytes / 4));
  }

  // Over the lanes of this lane's group, the same bits in each of them.
  __device__ __forceinline__ float sum_group(float value) const {
#pragma unroll
    for (int mask = 1; mask < 32; mask <<= 1) {
      const float other = __shfl_xor_sync(~0u, value, mask);
      if (mask < t_.group_lanes) value += other;
    }
    if ((t_.group_rows & (t_.group_rows - 1)) == 0) return value;
    const int row_log2 = 1 + t_.slices_log2;
    const int first = (lane_ >> row_log2) / t_.group_rows * t_.group_rows;
    float sum = 0;
#pragma unroll 1
    for (int r = first; r < first + t_.group_rows; ++r) sum += __shfl_sync(~0u, value, r << row_log2 & 31);
    return sum;
  }

  // Values of a group in a slice.
  __device__ __forceinline__ float count_of(int slice) const {
    return static_cast<float>(min(max(t_.tile_channels - slice * t_.unit_rows, 0), t_.group_rows) * t_.l_out);
  }

  // Of this unit's share of the lane's group, times `factor`; the same bits in each lane of the group that holds
  // outputs.
  __device__ __forceinline__ Moments own_moments(const Values& v, float factor) const {
    if (t_.merged_by != 0) {
      // Lanes hold kPerLane values of one group, or none.
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) sum = fmaf(v[i], factor, sum);
      Moments m = {kPerLane, sum * (1.0f / kPerLane), 0};
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const float distance = fmaf(v[i], factor, -m.mean);
        m.m2 = fmaf(distance, distance, m.m2);
      }
#pragma unroll
      for (int mask = 1; mask < 32; mask <<= 1) {
        if (t_.merged_by & mask) m = merge_equal(m, mask);
      }
      return m;
    }
    bool valid[kPerLane];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      valid[i] = row_ < t_.tile_channels && position_ + i < t_.l_out;
      if (valid[i]) sum = fmaf(v[i], factor, sum);
    }
    Moments m = {count_of(slice_), 0, 0};
    m.mean = divide(sum_group(sum), m.count);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float distance = fmaf(v[i], factor, -m.mean);
      if (valid[i]) m.m2 = fmaf(distance, distance, m.m2);
    }
    m.m2 = sum_group(m.m2);
    return m;
  }

  __device__ __forceinline__ void normalise(Values& v) const {
    Spread group = spread_in_line(inside_, [&](const Scale& scale) { return own_moments(v, scale.factor()); });
    if (t_.exchange == static_cast<int>(Exchange::kCluster)) {
      group = exchange_in_cluster(group);
    } else if (t_.exchange == static_cast<int>(Exchange::kWords)) {
      group = exchange_by_words(group);
    }
    const float rstd = rstd_of(group, t_.eps);
    const float by = t_.gamma == nullptr ? rstd : rstd * gamma_.value(t_.param_dtype);
    const float plus = beta_.value(t_.param_dtype);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) v[i] = fmaf(v[i] - group.mean, by, plus);
  }

  // Of the whole group, from this unit's. A cluster holds one group, or groups of a power of two of units.
  __device__ __forceinline__ Spread exchange_in_cluster(const Spread& own) const {
    const int unit = (ptx::cluster_rank() >> p_.front.k_slices_log2 << t_.slices_log2) + slice_;
    float2* sample = reinterpret_cast<float2*>(shared_ + t_.moments) + n_ * t_.cluster_units;
    const uint32_t barrier = ptx::shared_address(shared_) + kMomentsBarrier;
    const float two[2] = {__shfl_sync(~0u, own.mean, 0), __shfl_sync(~0u, own.m2, 0)};
    if (t_.cluster == 1) {  // st.async is for clusters of more than one CTA
      if (lane_ == 0) {
        sample[unit] = make_float2(two[0], two[1]);
        ptx::mbarrier_arrive(barrier);
      }
    } else if (lane_ < t_.cluster) {
      ptx::store_async(ptx::map_to_rank(ptx::shared_address(sample + unit), lane_), two,
                       ptx::map_to_rank(barrier, lane_));
    }
    wait_cluster(barrier, "the statistics of another CTA");
    const int first = t_.group_units == t_.cluster_units ? 0 : unit & -t_.group_units;
    return gather([&](int i, float count) {
      const float2 s = sample[first + i];
      return Spread{count, s.x, s.y};
    });
  }

  __device__ __forceinline__ ptx::Word* words_of_group() const {
    return t_.slot.words +
           (static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y) * p_.front.tile_samples + n_) * t_.group_units;
  }
  __device__ __forceinline__ int word_of_unit() const {
    return ((static_cast<int>(blockIdx.x) >> p_.front.k_slices_log2) << t_.slices_log2) + slice_;
  }

  // A row of the grid holds one group, of the samples of one tile.
  __device__ __forceinline__ Spread exchange_by_words(const Spread& own) const {
    ptx::Word* words = words_of_group();
    const uint64_t tag = *reinterpret_cast<const uint64_t*>(shared_ + kTagOffset);
    if (lane_ == 0) publish(words + word_of_unit(), tag, own);
    return gather([&](int i, float count) { return await(words + i, tag, count); });
  }

  // Merges all units of the group, which read(0, count), ..., read(group_units - 1, count) give, each lane its share,
  // in an order that depends on their number alone: the same bits everywhere.
  template <class Read>
  __device__ __forceinline__ Spread gather(const Read& read) const {
    return spread_in_line(inside_, [&](const Scale& scale) { return gather_at(scale, read); });
  }

  template <class Read>
  __device__ __forceinline__ Moments gather_at(const Scale& scale, const Read& read) const {
    const int lane = lane_ & (t_.merging_lanes - 1);
    if (t_.even) {
      Moments all = scale.moments(read(lane, count_of(0)));
#pragma unroll 1
      for (int mask = 1; mask < t_.merging_lanes; mask <<= 1) all = merge_equal(all, mask);
      return all;
    }
    const auto of_unit = [&](int i) { return scale.moments(read(i, count_of(i & ((1 << t_.slices_log2) - 1)))); };
    Moments all = {0, 0, 0};
    if (lane < t_.group_units) all = of_unit(lane);
#pragma unroll 1
    for (int i = lane + t_.merging_lanes; i < t_.group_units; i += t_.merging_lanes) all = merge(all, of_unit(i));
#pragma unroll 1
    for (int mask = 1; mask < t_.merging_lanes; mask <<= 1) {
      const Moments other = {__shfl_xor_sync(~0u, all.count, mask), __shfl_xor_sync(~0u, all.mean, mask),
                             __shfl_xor_sync(~0u, all.m2, mask)};
      // Both lanes merge in the same order, so that all end with the same bits.
      const bool upper = lane & mask;
      const Moments low = {upper ? other.count : all.count, upper ? other.mean : all.mean, upper ? other.m2 : all.m2};
      const Moments high = {upper ? all.count : other.count, upper ? all.mean : other.mean, upper ? all.m2 : other.m2};
      all = merge(low, high);
    }
    return all;
  }

  // Of the whole group, from this unit's, which all its lanes hold.
  __device__ __forceinline__ Spread straight_exchange(const Places& at, const Spread& own) const {
    Spread unit;
    if (at.exchange == static_cast<int>(Exchange::kCluster)) {
      const float two[2] = {own.mean, own.m2};
      const uint32_t barrier = at.barriers + kMomentsBarrier;
      if (p_.front.alone) {
        if (lane_ == 0) {
          ptx::store_shared_64(at.own_moments, two[0], two[1]);
          ptx::mbarrier_arrive(barrier);
        }
      } else if (lane_ < t_.cluster) {
        ptx::store_async(ptx::map_to_rank(at.own_moments, lane_), two, ptx::map_to_rank(barrier, lane_));
      }
      wait_cluster(barrier, "the statistics of another CTA");
      const float2 s = ptx::load_shared_64(at.moments);
      unit = {own.count, s.x, s.y};
    } else {
      ptx::Word* words = words_of_group();
      const uint64_t tag = *reinterpret_cast<const uint64_t*>(shared_ + kTagOffset);
      if (lane_ == 0) publish(words + word_of_unit(), tag, own);
      unit = await(words + (lane_ & (at.merging_lanes - 1)), tag, own.count);
    }
    const Moments all = moments_of_lanes(Scale(0).moments(unit), at.merging_lanes);
    if (!Scale::in_range(all.m2)) return spread_of_lanes(unit, at.merging_lanes);
    return {all.count, all.mean, all.m2};
  }

  __device__ __forceinline__ void straight_post(Values& v, const TailOp& stage) const {
    if (stage.op == CONVNORM_ADD) {
      add_residual(v);
    } else if (stage.op == CONVNORM_FILM) {
      apply_film(v);
    } else {
      const float parameter = stage.op == CONVNORM_PRELU ? slope_.value(t_.param_dtype) : stage.param;
      const FourValues of = apply_other({v[0], v[1], v[2], v[3]}, static_cast<convnorm_op>(stage.op), parameter);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) v[i] = of.v[i];
    }
  }

  __device__ __forceinline__ void apply_film(Values& v) const {
    const float by = scale_.value(t_.param_dtype), plus = shift_.value(t_.param_dtype);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) v[i] = fmaf(v[i], by, plus);
  }
  __device__ __forceinline__ void add_residual(Values& v) const {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) v[i] += element_value(residual_[i]);
  }

  __device__ __forceinline__ void post(Values& v) const {
#pragma unroll 1
    for (int s = 0; s < t_.post_count; ++s) {
      const TailOp stage = t_.post[s];
      if (stage.op == CONVNORM_FILM) {
        apply_film(v);
      } else if (stage.op == CONVNORM_ADD) {
        add_residual(v);
      } else {
        const float parameter = stage.op == CONVNORM_PRELU ? slope_.value(t_.param_dtype) : stage.param;
        detail::apply_formula(static_cast<convnorm_op>(stage.op), v, [&](int) { return parameter; });
      }
    }
  }

  static __device__ __forceinline__ float element_value(uint32_t bits) {
    if constexpr (sizeof(Element) == 4) return __uint_as_float(bits);
    if constexpr (std::is_same_v<Element, __half>) return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
    return __uint_as_float(bits << 16);
  }

  static __device__ __forceinline__ void store_vector(Element* to, const Values& v) {
    alignas(16) Element out[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) out[i] = from_float<Element>(v[i]);
    if constexpr (sizeof(out) == 16) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(out);
    } else {
      *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(out);
    }
  }

  __device__ __forceinline__ void store(const Values& v) const {
    Element* to = static_cast<Element*>(t_.y) + y_offset();
    if (t_.y_vectors) {
      if (position_ < t_.l_out) store_vector(to, v);
    } else {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if (position_ + i < t_.l_out) to[i] = from_float<Element>(v[i]);
      }
    }
  }

  const Tail& t_;
  const Parameters& p_;
  unsigned char* const shared_;
  const int k_slice_, warp_, lane_;
  int n_;         // sample of the tile
  int sample_;    // of the problem
  int slice_;     // of the tile's rows
  int row_;       // of the tile
  int position_;  // the first of kPerLane
  int channel_;   // of y
  bool has_unit_;
  bool inside_;                                    // in a row that holds a channel, of a sample that exists
  Requested<Element> bias_, base_, gamma_, beta_;  // base_: the bias of the first channel of the group
  Requested<Element> pre_slope_, slope_, scale_, shift_;
  uint32_t residual_[kPerLane];  // bits of elements
};

}  // namespace convnorm::cuda::sm90_stream
