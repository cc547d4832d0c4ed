// Everything between z and y for tiles of one sample whose groups lie in 16 rows or are made of them
// (Config::by_warps): a warp takes its 16 rows to y on its own. Registers hold the values, a warp's corner of shared
// memory the rest.
#pragma once

#include "kernels/cuda/collective/exchange.cuh"
#include "kernels/cuda/collective/row_parameters.cuh"
#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/epilogue.cuh"

namespace convnorm::cuda {

// begin() before the convolution, run() after it.
template <class T>
class WarpEpilogue {
 public:
  using Element = typename T::Element;
  using Parameters = typename T::Parameters;
  static constexpr int kValues = T::kAccumulators;
  static constexpr int kTiles8 = T::kTiles8;
  static constexpr bool kVectors = kTiles8 % 8 == 0;  // rows may be written by vectors
  // Words that a lane has on their way; beside 64 accumulators more of them spill.
  static constexpr int kWordsAtOnce = kValues > 32 ? 1 : 4;
  static constexpr int kOpValues = kValues % 16 == 0 ? 16 : kValues / 4;  // to which an op is applied at once

  __device__ __forceinline__ WarpEpilogue(const Parameters& p, unsigned char* shared, int warp)
      : p_(p), c_(p.config), shared_(shared), warp_(warp) {}

  // Computes what would otherwise be waited for when the tile is done. A later tile of other channels than the last
  // one's loads their parameters.
  __device__ __forceinline__ void begin(const Walk& walk, bool later) {
    const int first_channel = first_channel_of(walk);
    if (later && first_channel != first_channel_) {
      const int row = warp_ * kWarpRows;
      __syncwarp();  // all have read what was there
      load_row_parameters<T>(p_, shared_, first_channel - row, row, row + kWarpRows, threadIdx.x % 32, 32);
      __syncwarp();
    }
    first_channel_ = first_channel;
    if (p_.arguments.lengths != nullptr) {
      __syncwarp();
      outputs() = outputs_of_sample(p_.arguments, walk.first_sample);
      __syncwarp();
    }
    if (c_.participants > 1) task(0, threadIdx.x % 32) = task_of(walk);
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
    if (p_.arguments.groups == 0 || first_channel_ >= p_.arguments.o) return;
    take_spreads(walk, d, [&](int lane, int lower, const Spread& s) {
      if (c_.participants == 1) {
        moment_table()[(lane / 4 >> c_.piece_rows_log2) + lower] = of_group(s);
      } else {
        publish(p_.slot.words + task(0, lane).own_word + lower * c_.participants, tag_of(walk), s);
      }
    });
  }
  __device__ __forceinline__ void gather(const Walk& walk) const {
    if (c_.participants > 1 && first_channel_ < p_.arguments.o) gather_spreads(walk, false);
  }
  __device__ __forceinline__ void finish(const Walk& walk, float (&d)[kValues]) const {
    if (first_channel_ < p_.arguments.o) store_rows(walk, stored_columns_of(walk), d);
  }

  // For this block and the next one in one round of waiting, where the words of both take no more lanes than a warp
  // has.
  __device__ __forceinline__ bool gathers_two() const { return groups_of_warp() << c_.gather_lanes_log2 <= 16; }
  __device__ __forceinline__ void gather_two(const Walk& walk) const {
    if (c_.participants > 1 && first_channel_ < p_.arguments.o) gather_spreads(walk, true);
  }

 protected:
  // Of those that compute a tile; where several tiles are on their way in a CTA, each has its own part of shared
  // memory.
  __device__ __forceinline__ int warp_of_tile() const {
    if constexpr (requires { T::kTileWarps; }) return warp_ % T::kTileWarps;
    return warp_;
  }
  // Of those that store at the same time.
  __device__ __forceinline__ int storing_warp() const {
    if constexpr (requires { T::kTileWarps; }) return warp_ / T::kTileWarps * 4 + warp_ % 4;
    return warp_;
  }

  __device__ __forceinline__ int first_channel_of(const Walk& walk) const {
    return ((walk.row_tile << c_.warpgroups_log2) * 4 + warp_of_tile()) * kWarpRows;
  }

  // Of the sample that begin() was given, where lengths are given.
  __device__ __forceinline__ int& outputs() const { return reinterpret_cast<int*>(shared_ + p_.plan.outputs)[warp_]; }

  // Columns of a tile of y, and those of them that are outputs of the sample: the others are zeros.
  __device__ __forceinline__ int stored_columns_of(const Walk& walk) const {
    return walk.column_tile + 1 == c_.column_tiles ? c_.last_columns : T::kColumns;
  }
  __device__ __forceinline__ int columns_of(int column_tile) const {
    if (p_.arguments.lengths != nullptr) return max(0, min(outputs() - column_tile * T::kColumns, T::kColumns));
    return column_tile + 1 == c_.column_tiles ? c_.last_columns : T::kColumns;
  }

  // What follows from it is computed where it is used: there are no registers to keep it from tile to tile.
  static __device__ __forceinline__ int lane_anew() {
    int lane = static_cast<int>(threadIdx.x) % 32;
    asm volatile("" : "+r"(lane));
    return lane;
  }

  // Of the warp's rows.
  __device__ __forceinline__ const RowParameters& row(int i) const {
    return row_parameters(p_, shared_)[warp_ * kWarpRows + i];
  }
  // {mean, rstd} of the warp's groups, `blocks` blocks on.
  __device__ __forceinline__ float2* moment_table(int blocks = 0) const {
    return reinterpret_cast<float2*>(shared_ + p_.plan.statistics) + blocks * kBlockRows + warp_ * kWarpRows;
  }

  // Of the warp's pieces, to take(lane, lower, spread): by one lane for each, that of its first row, or of the row
  // eight above, whose own piece is `lower` pieces before it. What is taken again is the same. The bias moves the means
  // alone: it is never added to the values.
  template <class Take>
  __device__ __forceinline__ void take_spreads(const Walk& walk, const float (&d)[kValues], const Take& take) const {
    const int lane = lane_anew();
    const int columns = columns_of(walk.column_tile);
    const bool whole = 1 << c_.piece_rows_log2 == kWarpRows;
    const bool first_of_piece = (lane & ((4 << c_.piece_rows_log2) - 1)) == 0;
    const int lower = 8 >> c_.piece_rows_log2;  // pieces from that of the upper row to that of the lower one
    // What is known leaves at once: beside the accumulators there are no registers to keep it.
    const auto deliver = [&](int h, const Spread& s) {
      if (first_of_piece && (h == 0 || !whole)) take(lane, h * lower, s);
    };
    if (columns == T::kColumns && deliver_ordinary(d, deliver)) return;
    // The scale at which a piece must be measured, four bits for each of the two: there it is delivered, and once.
    // Others wait for it whatever its values are.
    unsigned asked = 0x11;
    at_scales([&](const Scale& scale) {
      Moments m[2];  // first of this lane's values, then of those of ever more lanes
      piece_moments(d, columns, scale.factor(), m);
      if (whole) m[0] = merge_equals(m[0], m[1].mean, m[1].m2);
      unsigned others = 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if ((asked >> 4 * h & scale.bit()) == 0) continue;
        const unsigned other = scale.others(m[h]);
        if (other == 0) {
          deliver(h, scale.spread(m[h]));
        } else {
          asked ^= (1 | other) << 4 * h;
        }
        others |= other;
      }
      return others;
    });
    if (c_.participants == 1) __syncwarp();
  }

  // The same for whole tiles at the ordinary scale, in one straight line, and whether that suits all of the warp's
  // pieces. Where it does not, those that it suits are delivered again, the same.
  template <class Deliver>
  __device__ __forceinline__ bool deliver_ordinary(const float (&d)[kValues], const Deliver& deliver) const {
    const int first_row = threadIdx.x % 32 / 4;
    const float bias[2] = {row(first_row).bias, row(first_row + 8).bias};
    Moments m[2];
    lane_moments(d, 1.0f, m);
#pragma unroll
    for (int k = 0; k < 5; ++k) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (k == 2) m[h].mean += bias[h];
        const Moments merged =
            merge_equals(m[h], __shfl_xor_sync(~0u, m[h].mean, 1 << k), __shfl_xor_sync(~0u, m[h].m2, 1 << k));
        // Selected, not branched around: a branch takes longer.
        const bool counts = k < 2 + c_.piece_rows_log2;
        m[h] = {merged.count, counts ? merged.mean : m[h].mean, counts ? merged.m2 : m[h].m2};
      }
    }
    const auto count = static_cast<float>(T::kColumns << min(c_.piece_rows_log2, 3));
    m[0].count = m[1].count = count;
    if (1 << c_.piece_rows_log2 == kWarpRows) m[0] = merge_equals(m[0], m[1].mean, m[1].m2);
    const bool ordinary[2] = {Scale::in_range(m[0].m2), Scale::in_range(m[1].m2)};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (ordinary[h]) deliver(h, {m[h].count, m[h].mean, m[h].m2});
    }
    const bool mine = ordinary[0] && (ordinary[1] || 1 << c_.piece_rows_log2 == kWarpRows);
    if (c_.participants == 1) __syncwarp();
    // Not a vote, whose result the compiler does not keep in uniform registers.
    return __reduce_or_sync(~0u, !mine) == 0;
  }

  // Of the first `columns` columns times `factor`: of a lane's values, of the quad's rows, of whole pieces.
  __device__ __forceinline__ void piece_moments(const float (&d)[kValues], int columns, float factor,
                                                Moments (&m)[2]) const {
    if (columns == T::kColumns) {
      lane_moments(d, factor, m);
#pragma unroll
      for (int k = 0; k < 2; ++k) merge_neighbours(m, k);
    } else {
      quad_moments(d, columns, factor, m);
    }
    const int first_row = threadIdx.x % 32 / 4;
    m[0].mean = fmaf(row(first_row).bias, factor, m[0].mean);
    m[1].mean = fmaf(row(first_row + 8).bias, factor, m[1].mean);
#pragma unroll
    for (int k = 2; k < 5; ++k) {
      if (k >= 2 + c_.piece_rows_log2) break;
      merge_neighbours(m, k);
    }
  }

  static __device__ __forceinline__ void merge_neighbours(Moments (&m)[2], int k) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      m[h] = merge_equals(m[h], __shfl_xor_sync(~0u, m[h].mean, 1 << k), __shfl_xor_sync(~0u, m[h].m2, 1 << k));
    }
  }

  static __device__ __forceinline__ void lane_moments(const float (&d)[kValues], float factor, Moments (&own)[2]) {
    constexpr float kCount = 2 * kTiles8;
    float sum[2][2] = {}, m2[2][2] = {};  // [h][e]
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i % 4 / 2][i % 2] = fmaf(d[i], factor, sum[i % 4 / 2][i % 2]);
#pragma unroll
    for (int h = 0; h < 2; ++h) own[h] = {kCount, (sum[h][0] + sum[h][1]) * (1 / kCount), 0.0f};
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float distance = fmaf(d[i], factor, -own[i % 4 / 2].mean);
      m2[i % 4 / 2][i % 2] = fmaf(distance, distance, m2[i % 4 / 2][i % 2]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) own[h].m2 = m2[h][0] + m2[h][1];
  }

  // Lanes of a quad may have different numbers of columns.
  static __device__ __forceinline__ void quad_moments(const float (&d)[kValues], int columns, float factor,
                                                      Moments (&rows)[2]) {
    const int left = columns - 2 * static_cast<int>(threadIdx.x % 4);
    const auto count = static_cast<float>(columns);
    float sum[2] = {}, m2[2] = {};
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (i / 4 * 8 + i % 2 < left) sum[i % 4 / 2] = fmaf(d[i], factor, sum[i % 4 / 2]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) rows[h] = {count, divide(sum_lanes(sum[h], 2), count), 0.0f};
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float distance = fmaf(d[i], factor, -rows[i % 4 / 2].mean);
      if (i / 4 * 8 + i % 2 < left) m2[i % 4 / 2] = fmaf(distance, distance, m2[i % 4 / 2]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) rows[h].m2 = sum_lanes(m2[h], 2);
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

  // A lane's share of the exchange.
  struct alignas(16) Task {
    int own_word;  // of its upper row's piece
    int word;      // of the first participant that it reads, of the group it reads first; < 0 for none
    float values;  // of that participant
    float share;   // which these are of the group's
  };

  // Of a lane, `blocks` blocks on, which are four warps each.
  __device__ __forceinline__ Task& task(int blocks, int lane) const {
    return reinterpret_cast<Task*>(shared_ + p_.plan.tasks)[(4 * blocks + warp_) * 32 + lane];
  }

  // The participants of a group follow each other. Some lie past the end of a sample: they have no values, and what
  // they publish is of no account. It is awaited all the same: who has seen the words of a round knows that those of
  // the one before have been read, and its own place may be written again.
  __device__ __forceinline__ Task task_of(const Walk& walk) const {
    const int lane = threadIdx.x % 32, row = lane / 4;
    const int first_row = first_channel_ - ((walk.first_row_tile << c_.warpgroups_log2) * kBlockRows);  // of the domain
    const int group = static_cast<int>(c_.group_rows.divide(first_row));
    const int piece = (first_row - group * static_cast<int>(c_.group_rows.value)) / kWarpRows;
    const int team = (walk.iteration & 1) * c_.teams + static_cast<int>(blockIdx.y);
    const int first_word = (team * c_.domain_groups + group) * c_.participants;
    const int own_group = row >> c_.piece_rows_log2;
    const int its_group = lane >> c_.gather_lanes_log2, participant = lane & ((1 << c_.gather_lanes_log2) - 1);
    const bool reads = its_group < groups_of_warp() && participant < c_.participants;
    const float values = values_of(participant);
    return {first_word + own_group * c_.participants + piece * c_.column_tiles + walk.column_tile,
            reads ? first_word + its_group * c_.participants + participant : -1, reads ? values : 0.0f,
            reads ? divide(values, values_of_group()) : 0.0f};
  }

  __device__ __forceinline__ int groups_of_warp() const { return kWarpRows >> c_.piece_rows_log2; }
  __device__ __forceinline__ float values_of_group() const {
    const int outputs = p_.arguments.lengths != nullptr ? this->outputs() : static_cast<int>(p_.arguments.l_out);
    return static_cast<float>(c_.group_rows.value) * static_cast<float>(outputs);
  }
  __device__ __forceinline__ float values_of(int participant) const {
    const int column = participant - static_cast<int>(c_.column_tile_divisor.divide(participant)) * c_.column_tiles;
    return static_cast<float>(columns_of(column) << c_.piece_rows_log2);
  }

  __device__ __forceinline__ uint64_t tag_of(const Walk& walk) const {
    return *reinterpret_cast<const uint64_t*>(shared_ + p_.plan.first_tag) + walk.iteration;
  }

  // Fills the moment table, or those of two blocks, each by one half of the warp.
  __device__ __forceinline__ void gather_spreads(const Walk& walk, bool two) const {
    int lane = lane_anew(), block = 0;
    if (two) block = lane / 16, lane %= 16;
    const int lanes_log2 = c_.gather_lanes_log2;
    const uint64_t tag = tag_of(walk);
    const Task& task = this->task(block, lane);
    const bool inside = first_channel_ + block * kBlockRows < p_.arguments.o;
    const float count = values_of_group();
    // What does not wait for others comes before that.
    float inverse = __fdividef(1.0f, count), eps = static_cast<float>(p_.arguments.eps);
    asm volatile("" : "+f"(inverse), "+f"(eps));
#pragma unroll 1
    for (int first = 0; first < groups_of_warp(); first += 32 >> lanes_log2) {
      const int its_group = first + (lane >> lanes_log2);
      const bool wanted = inside && its_group < groups_of_warp(), reads = task.word >= 0 && wanted;
      const ptx::Word* const words = p_.slot.words + task.word + first * c_.participants;
      const Spread all = spread_of(wanted, [&](const Scale& scale) {
        Moments part = {0, 0, 0};
        float share = task.share;
        if (kWordsAtOnce > 1 && reads) {
          take_words(scale, words, tag, lane & ((1 << lanes_log2) - 1), part);
          share = divide(part.count, count);
        } else if (reads) {
          const Spread its = await(words, tag, task.values);
          if (task.values > 0) part = scale.moments(its);
#pragma unroll 1
          for (int more = lane + 32; more < c_.participants; more += 32) {
            const Spread further = await(words + more - lane, tag, values_of(more));
            if (further.count == 0) continue;
            part = merge(part, scale.moments(further));
            share = divide(part.count, count);
          }
        }
        return merge_lanes(part, share, count, lanes_log2);
      });
      const bool writes = (lane & ((1 << lanes_log2) - 1)) == 0 && wanted;
      if (writes) {
        // M2 / count by a reciprocal and one correction: a division would branch.
        const float quotient = all.m2 * inverse, variance = fmaf(fmaf(-quotient, count, all.m2), inverse, quotient);
        moment_table(block)[its_group] =
            Scale::in_range(all.m2) ? make_float2(all.mean, inverse_sqrt(variance + eps)) : of_group(all);
      }
    }
    __syncwarp();
  }

  // A lane's participants of a group, from this one on, several of their words on their way at once.
  __device__ __forceinline__ void take_words(const Scale& scale, const ptx::Word* words, uint64_t tag, int participant,
                                             Moments& part) const {
#pragma unroll 1
    for (int first = participant; first < c_.participants; first += 32 * kWordsAtOnce) {
      ptx::Word found[kWordsAtOnce];
#pragma unroll
      for (int u = 0; u < kWordsAtOnce; ++u) {
        const int at = first + 32 * u;
        found[u] = ptx::load_relaxed(words + ((at < c_.participants ? at : first) - participant));
      }
#pragma unroll
      for (int u = 0; u < kWordsAtOnce; ++u) {
        const int at = first + 32 * u;
        if (at >= c_.participants) break;
        const Spread its = await(words + (at - participant), found[u], tag, values_of(at));
        if (its.count == 0) continue;
        const Moments own = scale.moments(its);
        part = part.count > 0 ? merge(part, own) : own;
      }
    }
  }

  // z to y in place: the norm, the ops, zeros past the end of a sample; then whole rows at once.
  __device__ __forceinline__ void store_rows(const Walk& walk, int columns, float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Norm norm = norm_of(h);
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) d[place(h, i)] = norm(d[place(h, i)]);
    }
#pragma unroll 1
    for (int s = 0; s < a.post_count; ++s) {
      const float argument = a.post[s].param;
      // One choice of the op for all values: where a warp is alone on its scheduler, choosing takes as long as the op
      // on sixteen of them. These change places, so that the code of each op exists once for them.
      detail::with_formula(a.post[s].op, [&](const auto& formula) {
#pragma unroll 1
        for (int part = 0; part < kValues / kOpValues; ++part) {
#pragma unroll
          for (int i = 0; i < kOpValues; ++i) {
            const float v = formula(d[i], argument);
#pragma unroll
            for (int next = i; next + kOpValues < kValues; next += kOpValues) d[next] = d[next + kOpValues];
            d[kValues - kOpValues + i] = v;
          }
        }
      });
    }
    if (a.lengths != nullptr) {
      const int left = columns_of(walk.column_tile) - 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        if (i / 4 * 8 + i % 2 >= left) d[i] = 0.0f;
      }
    }
    if (!kVectors || p_.store == Store::kStaged) return store_staged(walk, d);
    if constexpr (kVectors) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int channel = first_channel_ + lane_anew() / 4 + 8 * h;
        store_row<Element, kTiles8>([&](int i) { return d[place(h, i)]; }, threadIdx.x % 4, row_of_y(walk, channel),
                                    channel < a.o ? columns : 0);
      }
    }
  }

  // Value i of row h among the accumulators.
  static __device__ __forceinline__ constexpr int place(int h, int i) { return i / 2 * 4 + 2 * h + i % 2; }

  // Rows that do not start on sectors go by way of the warp's corner of shared memory. The lower row takes the upper
  // one's place, so that the code exists once.
  __device__ __forceinline__ void store_staged(const Walk& walk, float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
    const int lane = lane_anew();
    const Fragment at(lane);
    const Destination to = {a.y, a.n, a.c_y, a.l_out, first_channel_, {walk.first_sample, walk.first_position, 0}};
    StagedRows<Element, kTiles8> staged(
        to, at, lane, reinterpret_cast<Element*>(shared_ + p_.plan.staging + storing_warp() * p_.plan.staging_bytes));
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int first = 0; first < kValues / 2; first += 8) {
        float step[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) step[i] = first + i < kValues / 2 ? d[place(0, first + i)] : 0.0f;
        staged.put(step, h, first / 2);
      }
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) d[place(0, i)] = d[place(1, i)];
    }
  }

  // Of a row.
  struct Norm {
    float mean, factor, beta;
    __device__ __forceinline__ float operator()(float z) const { return fmaf(z - mean, factor, beta); }
  };
  __device__ __forceinline__ Norm norm_of(int h) const {
    const int row = lane_anew() / 4 + 8 * h;
    const RowParameters parameters = this->row(row);
    if (p_.arguments.groups == 0) return {0.0f, 1.0f, parameters.beta};
    const float2 moments = moment_table()[row >> c_.piece_rows_log2];
    return {moments.x - parameters.bias, moments.y * parameters.gamma, parameters.beta};
  }

  __device__ __forceinline__ Element* row_of_y(const Walk& walk, int channel) const {
    return static_cast<Element*>(p_.arguments.y) + y_offset(walk, channel);
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
