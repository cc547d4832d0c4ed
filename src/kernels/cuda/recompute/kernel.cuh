// One launch: inputs of some positions to shared memory, their products for the statistics, an exchange within the
// team, the same products once more on their way to y.
#pragma once

#include <cfloat>

#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/collective/exchange.cuh"
#include "kernels/cuda/collective/row_ops.cuh"
#include "kernels/cuda/collective/slots.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/recompute/inputs.cuh"
#include "kernels/cuda/recompute/instance_list.hpp"
#include "kernels/cuda/recompute/row_writer.cuh"

namespace convnorm::cuda::recompute {

// Of fp32 the scaled halves of fp16.
template <class Element>
using Operand = std::conditional_t<sizeof(Element) == 4, __half, Element>;

// max(x, 0) - |x| Phi(-|x|). The loop around it is what such a layer takes.
template <class Element>
__device__ __forceinline__ float gelu(float x) {
  if constexpr (sizeof(Element) == 4) return DeviceMath::gelu_erf(x);
  const float u = fabsf(x);
  const float t = fmaxf(fminf(u, 16.0f), -x);  // |x|, or 16 above that
  return fmaf(-t, ptx::exp2_approximate(phi_exponent(u)), fmaxf(x, 0.0f));
}

template <class Element, int kK16, Ops kOps>
class Cta {
 public:
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kSector = kSectorBytes / sizeof(Element);

  __device__ __forceinline__ Cta(const Parameters& p, unsigned char* shared)
      : p_(p),
        a_(p.arguments),
        c_(p.config),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        rank_(static_cast<int>(blockIdx.x) % c_.team),
        glu_(a_.glu < a_.post_count),
        count_(static_cast<int>(glu_ ? a_.c_y : a_.o_per_conv_group)) {}

  __device__ __forceinline__ void run() {
    uint64_t tag = 0;
    if (c_.words() > 0) {
      auto* shared_tag = reinterpret_cast<uint64_t*>(shared_);
      if (threadIdx.x == 0) *shared_tag = first_tag_of_launch(p_.slot.header, gridDim.x, c_.rounds);
    }
    place_columns();
    if (given()) wait_for_predecessor();
    const int team = static_cast<int>(blockIdx.x) / c_.team;
    const int64_t tasks = a_.n * a_.conv_groups * c_.sets;
    for (int round = 0; round < c_.rounds; ++round) {
      const int64_t task = int64_t{round} * c_.teams + team;
      if (task >= tasks) break;  // with its whole team
      take(task);
      if (measures()) {
        measure();
        if (round == 0 && c_.team > 1) tag = *reinterpret_cast<const uint64_t*>(shared_);
        find_norms(tag + round, (team * 2 + round % 2) * c_.team * c_.set_groups);
      }
      store_all();
    }
  }

 private:
  __device__ __forceinline__ bool given() const { return p_.given.rows != nullptr; }
  __device__ __forceinline__ bool measures() const { return a_.groups > 0 && !given(); }
  template <class T>
  __device__ __forceinline__ T* shared_at(int offset) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  __device__ __forceinline__ Slot* groups() const { return shared_at<Slot>(p_.shared.groups); }
  __device__ __forceinline__ RowParameters* parameters() const {
    return shared_at<RowParameters>(p_.shared.parameters);
  }
  __device__ __forceinline__ Norm* norms() const { return shared_at<Norm>(p_.shared.norms); }
  __device__ __forceinline__ double* constants() const { return shared_at<double>(p_.shared.constants); }
  __device__ __forceinline__ Row* rows() const { return shared_at<Row>(p_.shared.rows); }
  __device__ __forceinline__ float* centres() const { return shared_at<float>(p_.shared.centres); }
  // Of row `row` of the set, by the warps that share `position_warp`'s positions.
  __device__ __forceinline__ Slot* slot(int position_warp, int row) const {
    return shared_at<Slot>(p_.shared.staging) + position_warp * c_.set_rows() + row;
  }

  __device__ __forceinline__ void take(int64_t task) {
    set_ = static_cast<int>(task % c_.sets);
    const int64_t unit = task / c_.sets;
    conv_group_ = unit % a_.conv_groups, n_ = unit / a_.conv_groups;
    length_ = sample_length(a_, n_);
    valid_ = static_cast<int>(valid_outputs(a_, length_));
    held_ = -1;
    // Weights are on their way while x is awaited.
    const unsigned char* const weights =
        packed(p_.packed.operands) + (conv_group_ * c_.blocks() + set_ * c_.set_blocks) * int64_t{kK16 * 512};
    const int blocks = min(c_.set_blocks, c_.blocks() - set_ * c_.set_blocks);
    for (int i = static_cast<int>(threadIdx.x); i < blocks * kK16 * 4; i += kThreads)
      ptx::prefetch_l2_line(weights + 128 * i);
  }

  // --- what rows and groups belong to

  // Channel of the conv group's z in row `row` of the set, or a negative number.
  __device__ __forceinline__ int channel_in(int row) const {
    const int block = set_ * c_.set_blocks + row / kBlockRows;
    const int channel = c_.channel_of(block, row % kBlockRows);
    if (block >= c_.blocks() || channel >= c_.end_of(block, count_)) return -1;
    return row % kBlockRows < c_.block_channels ? channel : channel + static_cast<int>(a_.c_y);
  }
  // Row of the set that holds a channel of z.
  __device__ __forceinline__ int row_of(int channel) const {
    return c_.row_of(channel, glu_ ? static_cast<int>(a_.c_y) : 0) - set_ * c_.set_rows();
  }
  __device__ __forceinline__ bool groups_are_rows() const { return a_.o_per_norm_group == 1; }
  // Norm group, counted within the set.
  __device__ __forceinline__ int group_of(int row, int channel) const {
    if (groups_are_rows()) return row;
    const int of_group = static_cast<int>(a_.o_per_norm_group);
    if (c_.sets == 1) return channel / of_group;
    const bool gate = glu_ && channel >= a_.c_y;
    const int in_set = channel - (gate ? static_cast<int>(a_.c_y) : 0) - set_ * c_.set_channels();
    return in_set / of_group + (gate ? c_.set_channels() / of_group : 0);
  }
  // Its first channel; not below `channels` where there is none.
  __device__ __forceinline__ int first_channel(int group) const {
    const int of_group = static_cast<int>(a_.o_per_norm_group);
    if (c_.sets == 1) return group * of_group;
    const int own = c_.set_channels() / of_group;
    const bool gate = glu_ && group >= own;
    const int channel = set_ * c_.set_channels() + (gate ? group - own : group) * of_group;
    if (channel >= count_) return INT_MAX;
    return channel + (gate ? static_cast<int>(a_.c_y) : 0);
  }

  // --- inputs

  // First position of window `w` of this CTA.
  __device__ __forceinline__ int first_of(int w) const { return rank_ * c_.share() + w * c_.window(); }
  // Valid positions of CTA `rank`.
  __device__ __forceinline__ int count_of(int rank) const {
    return max(0, min(c_.share(), valid_ - rank * c_.share()));
  }

  // Where this lane's pairs lie, in bytes.
  __device__ __forceinline__ void place_columns() {
    const int taps = static_cast<int>(a_.k), per_channel = taps > 1 ? (taps + 1) / 2 : 1;
#pragma unroll
    for (int i = 0; i < 2 * kK16; ++i) {
      int pair = i / 2 * kPairsDeep + lane_ % 4 + i % 2 * 4, product = 0;
      // Weights of what is no pair are 0: any input serves.
      if (pair >= c_.products() * c_.pairs) pair = 0;
      while (pair >= c_.pairs) pair -= c_.pairs, ++product;
      const int of_unit = c_.pairs_of_channels ? taps : per_channel;
      const int unit = pair / of_unit, rest = pair - unit * of_unit;
      const int tap = c_.pairs_of_channels ? rest : max(0, min(2 * rest, taps - 2));
      const bool lower = c_.parts == 2 && product == 1;
      at_[i] = 4 * (unit * c_.width + tap * static_cast<int>(a_.dilation)) + (lower ? p_.shared.part : 0);
    }
  }

  // Inputs of window `w` and of the kSector positions before it, unless they are there.
  __device__ __forceinline__ void hold(int w) {
    if (held_ == w) return;
    // The parameters of a task are asked for before its x, and put down after it has come.
    const bool first_of_task = held_ < 0;
    held_ = w;
    RowParameters own = {};
    if (first_of_task && !given() && static_cast<int>(threadIdx.x) < c_.set_rows())
      own = load_parameters(static_cast<int>(threadIdx.x));
    const int from = (first_of(w) - kSector) * static_cast<int>(a_.stride) - static_cast<int>(a_.pad_left);
    const Source<Element> x(a_, n_, conv_group_, from, static_cast<int>(length_));
    auto* words = shared_at<uint32_t>(p_.shared.inputs);
    __syncthreads();  // the window before is used no more
    scale_ = load_window(a_, c_, x, words, shared_at<uint32_t>(p_.shared.inputs + p_.shared.part), centres(),
                         *shared_at<Range>(p_.shared.range), inputs_given());
    if (given()) {
      __syncthreads();
      return;
    }
    if (first_of_task) {
      for (int row = static_cast<int>(threadIdx.x); row < c_.set_rows(); row += kThreads) {
        parameters()[row] = row < kThreads ? own : load_parameters(row);
      }
    }
    find_constants();
    __syncthreads();
  }

  __device__ __forceinline__ RowParameters load_parameters(int row) const {
    RowParameters found = {0, 1, 0, 1};
    const int channel = channel_in(row);
    if (channel < 0) return found;
    const int64_t o = conv_group_ * a_.o_per_conv_group + channel;
    if (a_.bias != nullptr) found.bias = load_parameter<Element>(a_, a_.bias, o);
    if (a_.gamma != nullptr) found.gamma = load_parameter<Element>(a_, a_.gamma, o);
    if (a_.beta != nullptr) found.beta = load_parameter<Element>(a_, a_.beta, o);
    const auto* scales = reinterpret_cast<const float*>(packed(p_.packed.scales));
    found.scale = __ldg(scales + conv_group_ * c_.rows() + set_ * c_.set_rows() + row);
    return found;
  }

  __device__ __forceinline__ const unsigned char* packed(int64_t offset) const {
    return static_cast<const unsigned char*>(a_.packed_weight()) + offset;
  }

  __device__ __forceinline__ void find_constants() const {
    const int channels = static_cast<int>(a_.c_per_conv_group);
    const auto* sums = reinterpret_cast<const double*>(packed(p_.packed.sums)) +
                       (conv_group_ * c_.rows() + set_ * c_.set_rows()) * channels;
    for (int row = static_cast<int>(threadIdx.x); row < c_.set_rows(); row += kThreads) {
      double sum = parameters()[row].bias;
      if (sizeof(Element) == 4 && set_ * c_.set_rows() + row < c_.rows()) {
#pragma unroll 4
        for (int c = 0; c < channels; ++c) sum = fma(__ldg(sums + row * channels + c), double{centres()[c]}, sum);
      }
      constants()[row] = sum;
    }
  }

  __device__ __forceinline__ int64_t unit() const { return n_ * a_.conv_groups + conv_group_; }
  __device__ __forceinline__ const float* inputs_given() const {
    return given() ? p_.given.inputs + unit() * (1 + a_.c_per_conv_group) : nullptr;
  }

  // Power of two that a row's sums of products are too large by.
  __device__ __forceinline__ double excess(int row) const {
    return static_cast<double>(parameters()[row].scale) * scale_;
  }

  // --- products

  __device__ __forceinline__ void load_weights(int block, uint4 (&w)[kK16]) const {
    const uint4* operands = reinterpret_cast<const uint4*>(packed(p_.packed.operands)) +
                            (conv_group_ * c_.blocks() + set_ * c_.set_blocks + block) * (kK16 * 32) + lane_;
#pragma unroll
    for (int i = 0; i < kK16; ++i) w[i] = __ldg(operands + i * 32);
  }

  // Of product b among a quad's positions; with it, a lane's values of two (fp32) or four products are one vector.
  static __device__ __forceinline__ int offset_of(int b) {
    return sizeof(Element) == 4 ? b / 2 * 16 + b % 2 * 2 : 2 * b;
  }
  // Position of value i of a row within its quad.
  __device__ __forceinline__ int position_of(int i) const {
    return offset_of(i / 2) + (sizeof(Element) == 4 ? 4 : 8) * (lane_ % 4) + i % 2;
  }
  // The input under position `position` of the window.
  __device__ __forceinline__ const unsigned char* input_of(int position) const {
    return shared_ + p_.shared.inputs + 4 * (position + kSector) * static_cast<int>(a_.stride);
  }
  // The same for this lane's column of the quad that begins there.
  __device__ __forceinline__ const unsigned char* input_at(int position) const {
    const int g = lane_ / 4;
    return input_of(position + (sizeof(Element) == 4 ? 4 : 8) * (g / 2) + g % 2);
  }

  __device__ __forceinline__ void multiply(float (&d)[4], const uint4 (&w)[kK16], const unsigned char* x,
                                           const float (&start)[4]) const {
#pragma unroll
    for (int k = 0; k < kK16; ++k) {
      const auto b0 = *reinterpret_cast<const uint32_t*>(x + at_[2 * k]);
      const auto b1 = *reinterpret_cast<const uint32_t*>(x + at_[2 * k + 1]);
      if (k == 0) {
        ptx::mma<Operand<Element>>(d, w[k], b0, b1, start);
      } else {
        ptx::mma<Operand<Element>>(d, w[k], b0, b1);
      }
    }
  }

  // --- statistics

  __device__ __forceinline__ void measure() {
    const int step = kWarps / c_.position_warps, position_warp = warp_ % c_.position_warps;
    for (int w = 0; w < c_.windows && first_of(w) < valid_; ++w) {
      hold(w);
      for (int block = warp_ / c_.position_warps; block < c_.set_blocks; block += step) {
        measure_block(block, w, position_warp);
      }
    }
    __syncthreads();
    merge_rows();
    merge_groups();
  }

  // What sums are taken of distances from, for a row's `valid` positions in the window: the mean of eight values spread
  // over them. fp32 rounds the sum of squares by as much as their distance from the row's mean, squared, is beside the
  // variance; that of one value may be anything, since padding can set it apart from all others. Of values that are all
  // alike it is one of them.
  __device__ __forceinline__ void find_pilot(const uint4 (&weights)[kK16], int valid, float (&pilot)[2]) const {
    constexpr float kNothing[4] = {};
    const int column = (2 * (lane_ / 4) + 1) * valid / 16;
    float d[4];
    multiply(d, weights, input_of(column), kNothing);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = d[2 * h] + d[2 * h + 1];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      pilot[h] = sum * 0.125f;
    }
  }

  // Sums are taken in fp32, and merged in double.
  __device__ __forceinline__ void measure_block(int block, int w, int position_warp) const {
    const int valid = min(c_.window(), valid_ - first_of(w));
    const int stride = static_cast<int>(a_.stride);
    int count = 0;
    constexpr float kNothing[4] = {};
    float pilot[2] = {}, sum[2] = {}, square[2] = {};
    if (position_warp * c_.warp_positions() < valid) {
      uint4 weights[kK16];
      load_weights(block, weights);
      find_pilot(weights, valid, pilot);
#pragma unroll 1
      for (int first = position_warp * c_.warp_positions(); first < valid; first += c_.tile()) {
        const int end = min(valid - first, c_.warp_positions());
        count += end;
        const unsigned char* x = input_at(first);
#pragma unroll 1
        for (int at = 0; at < end; at += kQuad, x += 4 * kQuad * stride) {
          float d[4][4];
#pragma unroll
          for (int b = 0; b < 4; ++b) multiply(d[b], weights, x + 4 * offset_of(b) * stride, kNothing);
          if (at + kQuad > end) {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
              if (at + position_of(i / 4 * 2 + i % 2) >= end) d[i / 4][i % 4] = pilot[i / 2 % 2];
            }
          }
#pragma unroll
          for (int i = 0; i < 16; ++i) {
            // Not from the accumulators' start on: they would be rounded otherwise than those that become y.
            const float value = d[i / 4][i % 4] - pilot[i / 2 % 2];
            sum[i / 2 % 2] += value;
            square[i / 2 % 2] = fmaf(value, value, square[i / 2 % 2]);
          }
        }
      }
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask <<= 1) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], mask);
        square[h] += __shfl_xor_sync(~0u, square[h], mask);
      }
    }
    if (lane_ % 4 >= 2) return;
    const bool second = lane_ % 4 == 1;
    const int row = block * kBlockRows + lane_ / 4 + (second ? 8 : 0);
    if (channel_in(row) < 0) return;
    Slot own = {static_cast<double>(count), 0, 0};
    if (count > 0) {
      const double total = second ? sum[1] : sum[0], mean = total / own.count, inverse = 1 / excess(row);
      own.mean = constants()[row] + ((second ? pilot[1] : pilot[0]) + mean) * inverse;
      const double m2 = (second ? square[1] : square[0]) - total * mean;
      own.m2 = (m2 < 0 ? 0 : m2) * inverse * inverse;  // NaN stays
    }
    Slot* const to = slot(position_warp, row);
    *to = w == 0 ? own : merge(*to, own);
  }

  // Over the warps that share positions; what has no position stays empty.
  __device__ __forceinline__ void merge_rows() const {
    const bool any = first_of(0) < valid_;
    for (int row = static_cast<int>(threadIdx.x); row < c_.set_rows(); row += kThreads) {
      Slot all = {0, 0, 0};
      if (any && channel_in(row) >= 0) {
        for (int i = 0; i < c_.position_warps; ++i) all = merge(all, *slot(i, row));
      }
      *slot(0, row) = all;
    }
    __syncthreads();
  }

  // The set's groups, each by as many lanes of a warp as it has channels.
  __device__ __forceinline__ void merge_groups() const {
    const int of_group = static_cast<int>(a_.o_per_norm_group), thread = static_cast<int>(threadIdx.x);
    int lanes_log2 = 0;
    while (lanes_log2 < 5 && 1 << lanes_log2 < of_group) ++lanes_log2;
    const int lanes = 1 << lanes_log2, lane = thread % lanes;
    const auto sum_lanes = [&](double value) {
      for (int k = 0; k < lanes_log2; ++k) value += __shfl_xor_sync(~0u, value, 1 << k);
      return value;
    };
    for (int g0 = 0; g0 < c_.set_groups; g0 += kThreads / lanes) {
      const int g = g0 + thread / lanes;
      const int first = g < c_.set_groups ? groups_are_rows() ? channel_in(g) : first_channel(g) : -1;
      const bool exists = first >= 0 && first < a_.o_per_conv_group;
      const auto row = [&](int i) { return *slot(0, groups_are_rows() ? g : row_of(first + i)); };
      double sum = 0, m2 = 0, count = 0;
      if (exists) {
        count = row(0).count;
        for (int i = lane; i < of_group; i += lanes) sum += row(i).mean;
      }
      const double mean = sum_lanes(sum) / of_group;
      if (exists) {
        for (int i = lane; i < of_group; i += lanes) {
          const Slot each = row(i);
          const double distance = of_group == 1 ? 0 : each.mean - mean;
          m2 += each.m2 + count * distance * distance;
        }
      }
      m2 = sum_lanes(m2);
      // Rounded as it would be on its way to other CTAs: how many share a sample, which follows from the length of a
      // padded row, changes no bit.
      const double root = static_cast<float>(sqrt(m2));
      if (g < c_.set_groups && lane == 0) groups()[g] = {count * of_group, mean, root * root};
    }
    __syncthreads();
  }

  // Every CTA's moments to every CTA of the team, and what follows for each group, by a few lanes each.
  __device__ __forceinline__ void find_norms(uint64_t tag, int first_word) const {
    const double fault = packed_fault(a_);
    const int set_groups = c_.set_groups, thread = static_cast<int>(threadIdx.x);
    if (c_.team == 1) {
      for (int g = thread; g < set_groups; g += kThreads) {
        const Slot& own = groups()[g];
        norms()[g] = {own.mean, rstd(own.count, own.m2) + fault};
      }
      __syncthreads();
      return;
    }
    ptx::Word* const words = p_.slot.words + first_word;  // [rank][group]
    for (int g = thread; g < set_groups; g += kThreads) {
      const Slot& own = groups()[g];
      publish(words + rank_ * set_groups + g, tag, own.mean, own.count > 0 ? own.m2 / own.count : 0);
    }
    int lanes = 32;
    while (lanes > 1 && (lanes * set_groups > kThreads || lanes >= 2 * c_.team)) lanes /= 2;
    const int lane = thread % lanes;
    for (int g0 = 0; g0 < set_groups; g0 += kThreads / lanes) {
      const int g = g0 + thread / lanes;
      // Distances are taken from this CTA's mean, so that one round of sums serves mean and squares.
      const double reference = g < set_groups ? groups()[g].mean : 0.0;
      double count = 0, sum = 0, m2 = 0;
      if (g < set_groups) {
#pragma unroll 4
        for (int rank = lane; rank < c_.team; rank += lanes) {
          const Slot other =
              await_moments(words + rank * set_groups + g, tag, count_of(rank) * double(a_.o_per_norm_group));
          if (other.count == 0) continue;
          const double distance = other.mean - reference, weighted = other.count * distance;
          count += other.count, sum += weighted, m2 += fma(weighted, distance, other.m2);
        }
      }
      for (int mask = 1; mask < lanes; mask <<= 1) {
        count += __shfl_xor_sync(~0u, count, mask);
        sum += __shfl_xor_sync(~0u, sum, mask);
        m2 += __shfl_xor_sync(~0u, m2, mask);
      }
      if (g >= set_groups || lane != 0) continue;
      const double share = count > 0 ? sum / count : 0, left = fma(-sum, share, m2);
      norms()[g] = {reference + share, rstd(count, left < 0 ? 0 : left) + fault};  // NaN stays
    }
    __syncthreads();
  }

  // 0 where all values are alike: what a value differs from the mean by is then rounding alone, and the result is beta.
  __device__ __forceinline__ double rstd(double count, double m2) const {
    return count <= 1 || m2 == 0 ? 0 : inverse_sqrt(m2 / count + a_.eps);
  }

  // --- result

  __device__ __forceinline__ void store_all() {
    const int step = kWarps / c_.position_warps;
    // The window that was measured last is still there.
    for (int w = c_.windows - 1; w >= 0; --w) {
      if (first_of(w) - kSector >= a_.l_out) continue;
      hold(w);
      find_rows();
      __syncthreads();
      for (int block = warp_ / c_.position_warps; block < c_.set_blocks; block += step) store_block(block, first_of(w));
    }
    __syncthreads();
  }

  __device__ __forceinline__ static float clamped(double value) {
    return static_cast<float>(value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value);
  }

  __device__ __forceinline__ void find_rows() const {
    if (given()) {
      const int first = set_ * c_.set_rows(), rows_left = min(c_.set_rows(), c_.rows() - first);
      const Row* from = p_.given.rows + unit() * c_.rows() + first;
      for (int row = static_cast<int>(threadIdx.x); row < rows_left; row += kThreads) rows()[row] = from[row];
      return;
    }
    for (int row = static_cast<int>(threadIdx.x); row < c_.set_rows(); row += kThreads) {
      const int channel = channel_in(row);
      if (channel < 0) continue;
      const RowParameters given = parameters()[row];
      const double by = excess(row);
      Norm norm = {0, 1 + double{packed_fault(a_)}};
      if (a_.groups > 0) norm = norms()[group_of(row, channel)];
      // A tiny eps and no spread make more of it than fp32 holds; infinity times a deviation of 0 would be NaN.
      const double slope = norm.rstd * given.gamma;
      const double scale = slope > FLT_MAX ? FLT_MAX : slope < -FLT_MAX ? -FLT_MAX : slope;
      rows()[row] = {clamped(scale / by), clamped(fma(constants()[row] - norm.mean, scale, double{given.beta}))};
    }
  }

  __device__ __forceinline__ Element* y_row(int channel) const {
    return static_cast<Element*>(a_.y) + (n_ * a_.c_y + conv_group_ * a_.o_per_conv_group + channel) * a_.l_out;
  }

  __device__ __forceinline__ void store_block(int block, int first) const {
    const int number = set_ * c_.set_blocks + block, first_channel = c_.channel_of(number, 0);
    const int left = number < c_.blocks() ? (c_.end_of(number, count_) - first_channel + c_.classes - 1) / c_.classes
                                          : 0;  // rows that hold channels
    if (left <= 0) return;
    const bool ncl = a_.layout == CONVNORM_NCL;
    const int g = lane_ / 4, stride = static_cast<int>(a_.stride);
    // Elements from the start of a sector to the window in every row of the block. Where all rows start alike, they do
    // so on sectors, but for a y that is aligned to less, which is written element by element.
    const auto address = reinterpret_cast<uintptr_t>(y_row(first_channel) + first);
    const int shift = c_.classes > 1 ? static_cast<int>(address % kSectorBytes / sizeof(Element)) : 0;
    const bool aligned = c_.classes > 1 || address % 16 == 0;
    uint4 weights[kK16];
    load_weights(block, weights);
    const Row row[2] = {rows()[block * kBlockRows + g], rows()[block * kBlockRows + g + 8]};
    const float start[4] = {};
    const int channels[2] = {c_.channel_of(number, g), c_.channel_of(number, g + 8)};
    const int l_out = static_cast<int>(a_.l_out);
    const RowWriter<Element> writer(c_, y_row(first_channel), int64_t{c_.classes} * a_.l_out,
                                    min(left, c_.block_channels), staged(0, 0), pitch(), aligned);
#pragma unroll 1
    for (int in_window = warp_ % c_.position_warps * c_.warp_positions(); in_window < c_.window();
         in_window += c_.tile()) {
      const int warp_first = first + in_window - shift;
      if (warp_first >= l_out) break;
      const unsigned char* x = input_at(in_window - shift);
      const int end = min(l_out - warp_first, c_.warp_positions());
#pragma unroll 1
      for (int quad = 0; quad * kQuad < end; ++quad, x += 4 * kQuad * stride) {
        float v[2][8];
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          float d[4];
          multiply(d, weights, x + 4 * offset_of(b) * stride, start);
#pragma unroll
          for (int i = 0; i < 4; ++i) v[i / 2][2 * b + i % 2] = fmaf(d[i], row[i / 2].scale, row[i / 2].plus);
        }
        finish(v, channels, warp_first + quad * kQuad);
        stage(v, quad);
      }
      __syncwarp();
      if (ncl) {
        writer.write(warp_first, l_out);
      } else {
        write_columns(number, warp_first);
      }
      __syncwarp();
    }
  }

  // Ops, and zeros past the valid outputs. With a glu the result is in v[0].
  __device__ __forceinline__ void finish(float (&v)[2][8], const int (&channels)[2], int position) const {
    const auto position_at = [&](int i) {
      const int l = position + position_of(i);
      return l < 0 || l >= valid_ ? int64_t{-1} : int64_t{l};
    };
    const auto place = [&](int h) {
      const int64_t channel = min(channels[h], count_ - 1) + conv_group_ * a_.o_per_conv_group;
      return RowPlace{n_, glu_ && h == 1 ? channel + a_.c_y : channel};
    };
    if constexpr (kOps == Ops::kGelu) {
#pragma unroll
      for (int i = 0; i < 16; ++i) v[i / 8][i % 8] = gelu<Element>(v[i / 8][i % 8]);
    } else {
      apply_row_post<Element>(a_, 0, a_.glu, v, place, position_at);
    }
    if (kOps == Ops::kAny && glu_) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[0][i] *= DeviceMath::sigmoid(v[1][i]);
      const auto gated = [&](int) { return place(0); };
      apply_row_post<Element>(a_, a_.glu + 1, a_.post_count, reinterpret_cast<float(&)[1][8]>(v[0]), gated,
                              position_at);
    }
    if (position + kQuad <= valid_) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (position + position_of(i) >= valid_) v[0][i] = v[1][i] = 0;
    }
  }

  __device__ __forceinline__ int pitch() const { return row_pitch(c_.warp_positions(), sizeof(Element)); }
  __device__ __forceinline__ Element* staged(int in_block, int column) const {
    return reinterpret_cast<Element*>(shared_ + p_.shared.staging + (warp_ * kBlockRows + in_block) * pitch()) + column;
  }

  __device__ __forceinline__ void stage(const float (&v)[2][8], int quad) const {
    stage_vectors<Element>(
        v, [&](int h, int first) { return staged(lane_ / 4 + 8 * h, quad * kQuad + position_of(first)); });
  }

  // For channels last: neighbouring lanes write neighbouring channels.
  __device__ __forceinline__ void write_columns(int number, int warp_first) const {
    for (int i = lane_; i < c_.block_channels * c_.warp_positions(); i += 32) {
      const int in_block = i % c_.block_channels, column = i / c_.block_channels;
      const int channel = c_.channel_of(number, in_block);
      const int64_t position = warp_first + column;
      if (channel >= c_.end_of(number, count_) || position >= a_.l_out) continue;
      static_cast<Element*>(a_.y)[(n_ * a_.l_out + position) * a_.c_y + conv_group_ * a_.o_per_conv_group + channel] =
          *staged(in_block, column);
    }
  }

  const Parameters& p_;
  const Arguments& a_;
  const Config& c_;
  unsigned char* const shared_;
  const int warp_, lane_, rank_;
  const bool glu_;
  const int count_;  // channels of y in the conv group
  int64_t n_ = 0, conv_group_ = 0, length_ = 0;
  int set_ = 0, valid_ = 0;  // valid outputs
  int held_ = -1;            // window
  float scale_ = 1;          // of its inputs
  int at_[2 * kK16];
};

template <class Element, int kK16, Ops kOps>
__global__ void __launch_bounds__(kThreads, kPerSm) recompute_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  Cta<Element, kK16, kOps>(p, shared).run();
}

}  // namespace convnorm::cuda::recompute
