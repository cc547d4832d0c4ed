// Everything after the products of one tile: in the first pass its rows' moments and z, in a recomputing second one y.
#pragma once

#include "kernels/cuda/collective/row_ops.cuh"
#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/sm90_two_pass/row_norm.cuh"
#include "kernels/cuda/sm90_two_pass/traits.cuh"

namespace convnorm::cuda::sm90_two_pass {

// A warpgroup's block of 64 channels. begin() before the convolution, run() after it. What is kept lies in shared
// memory: beside the accumulators there are no registers for it.
template <class T>
class Epilogue {
 public:
  using Element = typename T::Element;
  static constexpr int kValues = T::kAccumulators, kRowValues = kValues / 2;
  static constexpr bool kFinish = T::kPass == Pass::kFinish;
  using Stored = std::conditional_t<kFinish, Element, float>;

  __device__ __forceinline__ Epilogue(const Parameters& p, unsigned char* shared, int warp)
      : p_(p), c_(p.config), shared_(shared), warpgroup_(warp / 4), at_(threadIdx.x % 128) {}

  __device__ __forceinline__ void begin(const Walk& walk, bool) {
    const Arguments& a = p_.arguments;
    block_ = (walk.row_tile << c_.warpgroups_log2) + warpgroup_;
    const int thread = threadIdx.x % 128, channel = block_ * kBlockRows + thread;
    const bool wanted = thread < kBlockRows && channel < a.o;
    Before before = {packed_fault(a), 0};
    if (wanted && a.bias != nullptr) before.bias += load_parameter<Element>(a, a.bias, channel);
    if (wanted && a.pre == CONVNORM_PRELU) {
      before.slope = load_parameter<Element>(a, a.pre_slope, a.pre_slope_per_channel ? channel : 0);
    }
    RowNorm norm = {0, 0, 0, 0};
    if (kFinish && wanted) norm = row_norm<Element>(a, p_.norms, walk.first_sample, channel);
    sync();  // the tables are free
    if (thread < kBlockRows) {
      before_table()[thread] = before;
      if constexpr (kFinish) norm_table()[thread] = norm;
    }
  }

  __device__ __forceinline__ void run(const Walk& walk, float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
    const int first_channel = block_ * kBlockRows;
    if (first_channel >= a.o) return;
    sync();
    const Columns columns = {walk.first_sample, walk.first_position, 0};
    const int64_t valid = a.lengths == nullptr ? a.l_out : valid_outputs(a, sample_length(a, walk.first_sample));
    const int64_t left = min(valid, a.l_out) - walk.first_position;
    const int end = static_cast<int>(left < 0 ? 0 : left < T::kColumns ? left : T::kColumns);
    if constexpr (kFinish) {
      finish({a.y, a.n, a.o, a.l_out, first_channel, columns}, end, d);
    } else {
      measure({p_.z, a.n, a.o, p_.pitch, first_channel, columns}, walk, end, d);
    }
  }

 private:
  struct Before {
    float bias;  // NaN if the packed weight is not this plan's
    float slope;
  };
  using RowMoments = any_arch::SegmentMoments;

  // Of the warpgroup's threads.
  __device__ __forceinline__ void sync() const {
    ptx::named_barrier(static_cast<int>(sm90_onchip::NamedBarrier::kWarpgroup) + warpgroup_, 128);
  }

  __device__ __forceinline__ Before* before_table() const {
    return reinterpret_cast<Before*>(shared_ + p_.plan.statistics) + warpgroup_ * kBlockRows;
  }
  __device__ __forceinline__ RowNorm* norm_table() const {
    return reinterpret_cast<RowNorm*>(shared_ + p_.plan.rows) + warpgroup_ * kBlockRows;
  }

  __device__ __forceinline__ RowMoments* moment_table() const {
    return reinterpret_cast<RowMoments*>(shared_ + p_.plan.tasks) + warpgroup_ * 128;
  }

  __device__ __forceinline__ StagedRows<Stored, T::kTiles8> staged_rows(const Destination& to) const {
    const int warp = threadIdx.x / 32;
    return {to, at_, static_cast<int>(threadIdx.x % 32),
            reinterpret_cast<Stored*>(shared_ + p_.plan.staging + warp * p_.plan.staging_bytes)};
  }

  template <int N>
  __device__ __forceinline__ void apply_before(float (&v)[N], const Before& before) const {
    if (p_.arguments.pre == CONVNORM_NONE) return;
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += before.bias;
    apply_row_pre<Element>(p_.arguments, v, before.slope);
  }

  // A row at a time; the other one then takes its place, so that the code exists once.
  __device__ __forceinline__ void measure(const Destination& to, const Walk& walk, int end, float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
    auto staged = staged_rows(to);
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
      const int row = at_.row + 8 * h;
      const Before before = before_table()[row];
      float v[kRowValues];
#pragma unroll
      for (int i = 0; i < kRowValues; ++i) v[i] = d[i / 2 * 4 + i % 2];
      apply_before(v, before);
      RowMoments moments = end == T::kColumns ? row_moments<true>(v, end) : row_moments<false>(v, end);
      if (a.pre == CONVNORM_NONE) moments.mean += before.bias;
      if (at_.quad == 0) moment_table()[row] = moments;
      if (p_.z != nullptr) {
        if (p_.store == Store::kVectors) {
          store_tiles<float, T::kTiles8>(v, at_, h, 0, to);
        } else {
#pragma unroll
          for (int first = 0; first < kRowValues; first += 8) {
            float step[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) step[i] = v[first + i];
            if (p_.store == Store::kStaged) {
              staged.put(step, h, first / 2);
            } else {
              store_elements<float>(step, at_, h, first / 2, to);
            }
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kRowValues; ++i) d[i / 2 * 4 + i % 2] = d[i / 2 * 4 + 2 + i % 2];
    }
    sync();
    if (end > 0) merge_rows(walk, end);
  }

  // Rows to the block's pieces of groups, eight lanes to a piece.
  __device__ __forceinline__ void merge_rows(const Walk& walk, int end) const {
    constexpr int kRows = kBlockRows, kLanes = 8;
    const GroupPieces& pieces = p_.pieces;
    const int group_rows = static_cast<int>(c_.group_rows.value), first_channel = block_ * kRows;
    const int first_group = static_cast<int>(c_.group_rows.divide(first_channel));
    const int rows = min(kRows, static_cast<int>(p_.arguments.o) - first_channel);
    const int lane = threadIdx.x % kLanes;
    GroupPieces::Moments* to =
        pieces.moments +
        ((walk.first_sample * pieces.segments + walk.column_tile) * pieces.blocks + block_) * pieces.of_block;
#pragma unroll 1
    for (int piece = threadIdx.x % 128 / kLanes; (piece & ~3) < pieces.of_block; piece += 128 / kLanes) {
      const int group_begin = (first_group + piece) * group_rows - first_channel;
      const int begin = min(max(group_begin, 0), rows), piece_end = min(group_begin + group_rows, rows);
      const auto sum = [&](double value) {
#pragma unroll
        for (int step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(~0u, value, step);
        return value;
      };
      const double base = begin < piece_end ? moment_table()[begin].mean : 0;
      double mean = 0, m2 = 0;
#pragma unroll 1
      for (int row = begin + lane; row < piece_end; row += kLanes) mean += moment_table()[row].mean - base;
      mean = base + sum(mean) / (piece_end - begin);
#pragma unroll 1
      for (int row = begin + lane; row < piece_end; row += kLanes) {
        const RowMoments its = moment_table()[row];
        m2 += its.m2 + end * (its.mean - mean) * (its.mean - mean);
      }
      m2 = sum(m2);
      if (lane == 0 && begin < piece_end) to[piece] = {mean, m2};
    }
  }

  // Of the first `end` columns of a row. All values are brought near 1 by a power of two, so that no square leaves
  // fp32; the deviations are summed too, which takes the rounding of the mean out again.
  template <bool kWhole>
  __device__ __forceinline__ RowMoments row_moments(const float (&v)[kRowValues], int end) const {
    const auto inside = [&](int i) { return kWhole || at_.column(i / 2, i % 2) < end; };
    float most = 0;
#pragma unroll
    for (int i = 0; i < kRowValues; ++i) {
      if (inside(i)) most = fmaxf(most, fabsf(v[i]));
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    // 2^-e for a largest value of 2^e and more, both held within normal numbers.
    const uint32_t exponent = min(max(__float_as_uint(most) >> 23, 1u), 253u);
    const float scale = __uint_as_float((254 - exponent) << 23);
    float sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kRowValues; ++i) {
      if (inside(i)) sum[i % 2] = fmaf(v[i], scale, sum[i % 2]);
    }
    const float mean = divide(sum_lanes(sum[0] + sum[1], 2), static_cast<float>(end));
    float rest[2] = {0, 0}, squares[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kRowValues; ++i) {
      const float distance = inside(i) ? fmaf(v[i], scale, -mean) : 0.0f;
      rest[i % 2] += distance;
      squares[i % 2] = fmaf(distance, distance, squares[i % 2]);
    }
    const double all_rest = sum_lanes(rest[0] + rest[1], 2), all_squares = sum_lanes(squares[0] + squares[1], 2);
    const double correction = all_rest / end, unscale = __uint_as_float(exponent << 23);
    const double m2 = all_squares - all_rest * correction;
    return {(mean + correction) * unscale, (m2 < 0 ? 0 : m2) * unscale * unscale};
  }

  // Values are taken to y eight at a time: row h of four column tiles. The accumulators move down behind them, so that
  // the code for all the ops exists once.
  __device__ __forceinline__ void finish(const Destination& to, int end, float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
    auto staged = staged_rows(to);
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
      const int row = at_.row + 8 * h;
#pragma unroll 1
      for (int first_tile = 0; first_tile < T::kTiles8; first_tile += 4) {
        float step[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) step[i] = d[i / 2 * 4 + i % 2];
#pragma unroll
        for (int i = 0; i + 16 < kValues; ++i) {
          if (i % 4 < 2) d[i] = d[i + 16];
        }
        apply_before(step, before_table()[row]);
        const RowNorm norm = norm_table()[row];
#pragma unroll
        for (int i = 0; i < 8; ++i) step[i] = norm(step[i]);
        if (a.post_count > 0) apply_ops<Element>(a, step, at_, to.columns, to.first_channel + row, first_tile);
        if (a.lengths != nullptr) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            if (at_.column(first_tile + i / 2, i % 2) >= end) step[i] = 0.0f;
          }
        }
        if (p_.store == Store::kVectors) {
          store_tiles<Element, 4>(step, at_, h, first_tile, to);
        } else if (p_.store == Store::kStaged) {
          staged.put(step, h, first_tile);
        } else {
          store_elements<Element>(step, at_, h, first_tile, to);
        }
      }
      // Row 8 + r takes the place of row r.
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        if (i % 4 < 2) d[i] = d[i + 2];
      }
    }
  }

  const Parameters& p_;
  const sm90_onchip::Config& c_;
  unsigned char* const shared_;
  const int warpgroup_;
  const Fragment at_;
  int block_;
};

}  // namespace convnorm::cuda::sm90_two_pass
