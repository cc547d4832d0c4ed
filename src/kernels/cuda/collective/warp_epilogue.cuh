// Everything between z and y for tiles of one sample whose groups lie in 16 rows or are made of them (Config::by_warps):
// a warp takes its 16 rows to y on its own. Registers hold the values, a warp's corner of shared memory the rest.
#pragma once

#include "kernels/cuda/collective/exchange.cuh"
#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/collective/row_parameters.cuh"

namespace convnorm::cuda {

// begin() before the convolution, run() after it.
template <class T>
class WarpEpilogue {
 public:
  using Element = typename T::Element;
  using Parameters = typename T::Parameters;
  static constexpr int kValues = T::kAccumulators;
  static constexpr int kTiles8 = T::kTiles8;

  __device__ __forceinline__ WarpEpilogue(const Parameters& p, unsigned char* shared, int warp)
      : p_(p), c_(p.config), shared_(shared), warp_(warp) {}

  // A later tile of other channels than the last one's loads their parameters.
  __device__ __forceinline__ void begin(const Walk& walk, bool later) {
    const int first_channel = first_channel_of(walk);
    if (later && first_channel != first_channel_) {
      const int row = warp_ * kWarpRows;
      __syncwarp();  // all have read what was there
      load_row_parameters<T>(p_, shared_, first_channel - row, row, row + kWarpRows, threadIdx.x % 32, 32);
      __syncwarp();
    }
    first_channel_ = first_channel;
  }

  // For run() in an object that has not begun.
  __device__ __forceinline__ void place(const Walk& walk) { first_channel_ = first_channel_of(walk); }

  __device__ __forceinline__ void run(const Walk& walk, float (&d)[kValues]) const {
    measure(walk, d);
    gather(walk);
    finish(walk, d);
  }

  // run() in three parts. A warp that has two sets of rows measures both before it waits for others.
  __device__ __forceinline__ void measure(const Walk& walk, const float (&d)[kValues]) const {
    if (p_.arguments.groups > 0 && first_channel_ < p_.arguments.o) take_spreads(walk, d);
  }
  __device__ __forceinline__ void gather(const Walk& walk) const {
    if (c_.participants > 1 && first_channel_ < p_.arguments.o) gather_spreads<1>(walk);
  }
  // For this block of the tile and the next one: one round of waiting serves both.
  __device__ __forceinline__ void gather_two(const Walk& walk) const {
    if (c_.participants > 1 && first_channel_ < p_.arguments.o) gather_spreads<2>(walk);
  }
  __device__ __forceinline__ void finish(const Walk& walk, float (&d)[kValues]) const {
    if (first_channel_ >= p_.arguments.o) return;
    const bool last = walk.column_tile + 1 == c_.column_tiles;
    store_rows(walk, last ? c_.last_columns : T::kColumns, d);
  }

 private:
  __device__ __forceinline__ int first_channel_of(const Walk& walk) const {
    return ((walk.row_tile << c_.warpgroups_log2) * 4 + warp_) * kWarpRows;
  }

  // Of the warp's rows.
  __device__ __forceinline__ const RowParameters& row(int i) const {
    return row_parameters(p_, shared_)[warp_ * kWarpRows + i];
  }
  // {mean, rstd} of the warp's groups, `blocks` blocks on.
  __device__ __forceinline__ float2* moment_table(int blocks = 0) const {
    return reinterpret_cast<float2*>(shared_ + p_.plan.statistics) + blocks * kBlockRows + warp_ * kWarpRows;
  }

  // Of the warp's pieces: into the moment table, or to those with whom it shares groups. The bias moves the means alone:
  // it is never added to the values.
  __device__ __forceinline__ void take_spreads(const Walk& walk, const float (&d)[kValues]) const {
    const int lane = threadIdx.x % 32, row = lane / 4;
    const bool last = walk.column_tile + 1 == c_.column_tiles;
    const int tiles = (last ? c_.last_columns : T::kColumns) / 8;
    const bool whole = 1 << c_.piece_rows_log2 == kWarpRows;
    Spread own[2];  // of the groups of rows `row` and `row` + 8
    at_scales([&](const Scale& scale) {
      Moments m[2];  // first of this lane's values, then of those of ever more lanes
      piece_moments(d, tiles, scale.factor(), m);
      if (whole) m[0] = merge_equals(m[0], m[1].mean, m[1].m2);
      unsigned others = 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (scale.suits(m[h])) own[h] = scale.spread(m[h]);
        if (first_channel_ + row + 8 * h < p_.arguments.o) others |= scale.others(m[h]);
      }
      return others;
    });

    if (c_.participants == 1) {
      if (lane % (4 << c_.piece_rows_log2) == 0) {
        moment_table()[row >> c_.piece_rows_log2] = of_group(own[0]);
        if (!whole) moment_table()[(row + 8) >> c_.piece_rows_log2] = of_group(own[1]);
      }
      __syncwarp();
    } else {
      const Words words = words_of(walk, first_channel_);
      if (lane % (4 << c_.piece_rows_log2) == 0) {
        ptx::Word* mine = words.first + words.piece * c_.column_tiles + walk.column_tile;
        publish(mine + (row >> c_.piece_rows_log2) * c_.participants, words.tag, own[0]);
        if (!whole) publish(mine + ((row + 8) >> c_.piece_rows_log2) * c_.participants, words.tag, own[1]);
      }
    }
  }

  // Of the lane's values times `factor`, then of its whole pieces.
  __device__ __forceinline__ void piece_moments(const float (&d)[kValues], int tiles, float factor,
                                                Moments (&m)[2]) const {
    if (tiles == kTiles8) {
      lane_moments<true>(d, tiles, factor, m);
    } else {
      lane_moments<false>(d, tiles, factor, m);
    }
    const int first_row = threadIdx.x % 32 / 4;
#pragma unroll
    for (int k = 0; k < 5; ++k) {
      if (k == 2) {
        m[0].mean = fmaf(row(first_row).bias, factor, m[0].mean);
        m[1].mean = fmaf(row(first_row + 8).bias, factor, m[1].mean);
      }
      if (k >= 2 + c_.piece_rows_log2) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        m[h] = merge_equals(m[h], __shfl_xor_sync(~0u, m[h].mean, 1 << k), __shfl_xor_sync(~0u, m[h].m2, 1 << k));
      }
    }
  }

  // Of this lane's values in the first `tiles` column tiles.
  template <bool kWhole>
  static __device__ __forceinline__ void lane_moments(const float (&d)[kValues], int tiles, float factor,
                                                      Moments (&own)[2]) {
    const auto count = static_cast<float>(2 * tiles);
    const float share = kWhole ? 1.0f / (2 * kTiles8) : divide(1.0f, count);
    float sum[2][2] = {}, m2[2][2] = {};  // [h][e]
#pragma unroll
    for (int t = 0; t < kTiles8; ++t) {
      if (!kWhole && t >= tiles) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i / 2][i % 2] = fmaf(d[4 * t + i], factor, sum[i / 2][i % 2]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) own[h] = {count, (sum[h][0] + sum[h][1]) * share, 0.0f};
#pragma unroll
    for (int t = 0; t < kTiles8; ++t) {
      if (!kWhole && t >= tiles) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float distance = fmaf(d[4 * t + i], factor, -own[i / 2].mean);
        m2[i / 2][i % 2] = fmaf(distance, distance, m2[i / 2][i % 2]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) own[h].m2 = m2[h][0] + m2[h][1];
  }

  // Chan's formula for as many values on either side; the same bits whichever side is which.
  static __device__ __forceinline__ Moments merge_equals(const Moments& a, float mean, float m2) {
    const float distance = a.mean - mean;
    return {2 * a.count, 0.5f * (a.mean + mean), fmaf(distance * distance, 0.5f * a.count, a.m2 + m2)};
  }

  // {mean, rstd}
  __device__ __forceinline__ float2 of_group(const Spread& s) const {
    return make_float2(s.mean, rstd_of(s, p_.arguments.eps));
  }

  // Of the warp's groups in this round: the participants of a group follow each other.
  struct Words {
    ptx::Word* first;
    uint64_t tag;
    int piece;  // of the first group, that of the warp
  };

  __device__ __forceinline__ Words words_of(const Walk& walk, int first_channel) const {
    const int first_row = first_channel - ((walk.first_row_tile << c_.warpgroups_log2) * kBlockRows);  // of the domain
    const int group = static_cast<int>(c_.group_rows.divide(first_row));
    const int piece = (first_row - group * static_cast<int>(c_.group_rows.value)) / kWarpRows;
    const int team = (walk.iteration & 1) * c_.teams + static_cast<int>(blockIdx.y);
    const uint64_t tag = *reinterpret_cast<const uint64_t*>(shared_ + p_.plan.first_tag) + walk.iteration;
    return {p_.slot.words + (team * c_.domain_groups + group) * c_.participants, tag, piece};
  }

  // Fills the moment tables of kBlocks blocks. The lanes that read the words of one group are neighbours.
  template <int kBlocks>
  __device__ __forceinline__ void gather_spreads(const Walk& walk) const {
    const int lane = threadIdx.x % 32, lanes_log2 = c_.gather_lanes_log2;
    const int groups = kWarpRows >> c_.piece_rows_log2, participant = lane & ((1 << lanes_log2) - 1);
#pragma unroll 1
    for (int first = 0; first < kBlocks * groups; first += 32 >> lanes_log2) {
      int group = first + (lane >> lanes_log2);
      const int block = kBlocks > 1 && group >= groups ? 1 : 0, first_channel = first_channel_ + block * kBlockRows;
      const bool inside = group < kBlocks * groups && first_channel < p_.arguments.o;
      group -= block * groups;
      const Words words = words_of(walk, first_channel);
      const Spread all = spread_of(inside, [&](const Scale& scale) {
        Moments part = {0, 0, 0};
        if (inside) {
#pragma unroll 1
          for (int i = participant; i < c_.participants; i += 32) {
            const int column = i - static_cast<int>(c_.column_tile_divisor.divide(i)) * c_.column_tiles;
            const int columns = column + 1 == c_.column_tiles ? c_.last_columns : T::kColumns;
            const auto count = static_cast<float>(columns << c_.piece_rows_log2);
            const Moments more = scale.moments(await(words.first + group * c_.participants + i, words.tag, count));
            part = i < 32 ? more : merge(part, more);
          }
        }
        const float count = static_cast<float>(c_.group_rows.value) * static_cast<float>(p_.arguments.l_out);
        return merge_lanes(part, count, lanes_log2);
      });
      if (participant == 0 && inside) moment_table(block)[group] = of_group(all);
    }
    __syncwarp();
  }

  // z to y, a row at a time; the other row then takes its place. So the code exists once, and is fetched once.
  __device__ __forceinline__ void store_rows(const Walk& walk, int columns, float (&d)[kValues]) const {
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
      finish_row(walk, columns, h, d);
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) d[i / 2 * 4 + i % 2] = d[i / 2 * 4 + 2 + i % 2];
    }
  }

  // Row h of this thread, whose values are where those of h = 0 lie.
  __device__ __forceinline__ void finish_row(const Walk& walk, int columns, int h, const float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
    const int lane = threadIdx.x % 32, row = lane / 4 + 8 * h;
    const RowParameters parameters = this->row(row);
    float mean = 0.0f, factor = 1.0f;
    if (a.groups > 0) {
      const float2 moments = moment_table()[row >> c_.piece_rows_log2];
      mean = moments.x - parameters.bias, factor = moments.y * parameters.gamma;
    }
    float v[kValues / 2];
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) v[i] = fmaf(d[i / 2 * 4 + i % 2] - mean, factor, parameters.beta);
#pragma unroll 1
    for (int s = 0; s < a.post_count; ++s) {
      const float argument = a.post[s].param;
      detail::apply_formula(a.post[s].op, v, [&](int) { return argument; });
    }
    store_row<Element, kTiles8>(v, lane % 4, static_cast<Element*>(a.y) + y_offset(walk, first_channel_ + row),
                                first_channel_ + row < a.o ? columns : 0);
  }

  __device__ __forceinline__ int64_t y_offset(const Walk& walk, int channel) const {
    return (walk.first_sample * p_.arguments.o + channel) * p_.arguments.l_out + walk.first_position;
  }

  const Parameters& p_;
  const Tiles& c_;
  unsigned char* const shared_;
  const int warp_;
  int first_channel_ = 0;
};

}  // namespace convnorm::cuda
