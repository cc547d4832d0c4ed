// Everything between z and y for one tile.
#pragma once

#include "kernels/cuda/collective/exchange.cuh"
#include "kernels/cuda/collective/ops.cuh"
#include "kernels/cuda/collective/row_parameters.cuh"
#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/ptx/barrier.cuh"

namespace convnorm::cuda {

// A warpgroup's block of 64 channels. begin() before the convolution, run() after it.
template <class T>
class Epilogue {
 public:
  using Element = typename T::Element;
  using Parameters = typename T::Parameters;
  static constexpr int kValues = T::kAccumulators;

  __device__ __forceinline__ Epilogue(const Parameters& p, unsigned char* shared, int warp)
      : p_(p),
        c_(p.config),
        shared_(shared),
        warpgroup_(warp / 4),
        at_(threadIdx.x % 128),
        table_(reinterpret_cast<float2*>(shared + p.plan.statistics + warp / 4 * p.plan.statistics_bytes)) {}

  // Of the warpgroup's threads.
  __device__ __forceinline__ void sync() const { ptx::named_barrier(kFirstBlockBarrier + warpgroup_, 128); }

  // Computes what would otherwise be waited for when the tile is done. A later tile of other channels than the last
  // one's loads their parameters.
  __device__ __forceinline__ void begin(const Walk& walk, bool later) {
    const int block = c_.block_of(walk.row_tile, warpgroup_), thread = threadIdx.x % 128;
    const bool load = later && block != block_;
    block_ = block;
    Task task = {};
    if (p_.arguments.groups > 0) task = task_of(walk, 0);
    task_table()[thread] = task;
    if (load) {
      sync();  // all have read what was there
      const int first_row = warpgroup_ * kBlockRows;
      load_row_parameters<T>(p_, shared_, block * kBlockRows - first_row, first_row, first_row + kBlockRows, thread,
                             128);
      sync();
    }
  }

  // For run() in an object that has not begun.
  __device__ __forceinline__ void place(const Walk& walk) { block_ = c_.block_of(walk.row_tile, warpgroup_); }

  __device__ __forceinline__ void run(const Walk& walk, float (&d)[kValues]) {
    measure(walk, d);
    gather(walk);
    finish(walk, d);
  }

  // run() in three parts. Threads that hold two blocks measure both before they wait for others: those may be
  // themselves.
  __device__ __forceinline__ void measure(const Walk& walk, float (&d)[kValues]) {
    const Arguments& a = p_.arguments;
    if (block_ * kBlockRows >= a.o) return;
    if (a.pre != CONVNORM_NONE) {
      if (a.bias != nullptr) add_bias(d);
      apply_pre_op(d);
    }
    if (a.groups > 0) {
      const ValidColumns valid = valid_columns(columns_of(walk));
      const float bias[2] = {row(at_.row).bias, row(at_.row + 8).bias};
      const int rows = static_cast<int>(a.o) - block_ * kBlockRows;
      row_statistics<T::kTiles8>(d, at_, c_.samples_log2, valid, bias, rows, table_);
      sync();
      merge_groups(walk);
    }
  }
  __device__ __forceinline__ void gather(const Walk& walk) const {
    if (c_.words_per_warpgroup > 0 && block_ * kBlockRows < p_.arguments.o) gather_groups(walk);
  }
  __device__ __forceinline__ void finish(const Walk& walk, float (&d)[kValues]) {
    if (block_ * kBlockRows >= p_.arguments.o) return;
    if (p_.arguments.groups > 0) sync();
    finish_in_steps(destination(walk), true, 0, d);
  }

  // With a glu, in threads that hold a block of values and that of their gates.
  __device__ __forceinline__ void finish_gated(const Walk& walk, float (&d)[kValues], float (&gates)[kValues]) {
    if (p_.arguments.groups > 0) sync();
    multiply_by_gates(columns_of(walk), d, gates);
    finish_in_steps(destination(walk), false, p_.arguments.glu + 1, d);
  }

 private:
  // One group's rows in this block, of one sample, and the group's other participants: a tile's columns of a block
  // each. A task is shared by 2^lanes_log2 lanes.
  struct alignas(16) Task {
    uint8_t first_row, end_row, sample;
    uint8_t shared;  // the group has other participants
    int own_word;
    int word;    // of the lane's first participant; < 0 if it has none
    float part;  // that one's values
  };

  __device__ __forceinline__ Columns columns_of(const Walk& walk) const {
    return {walk.first_sample, walk.first_position, c_.samples_log2};
  }

  __device__ __forceinline__ Destination destination(const Walk& walk) const {
    const Arguments& a = p_.arguments;
    return {a.y, a.n, a.c_y, a.l_out, block_ * kBlockRows, columns_of(walk), a.layout == CONVNORM_NLC};
  }

  __device__ __forceinline__ int channel(int h) const { return block_ * kBlockRows + at_.row + 8 * h; }

  // Of a sample's outputs, those in a tile that starts at `first_position`.
  __device__ __forceinline__ int in_tile(int outputs, int first_position) const {
    return max(0, min(outputs - first_position, c_.tile_positions));
  }

  __device__ __forceinline__ ValidColumns valid_columns(const Columns& columns) const {
    ValidColumns valid;
    if (c_.samples_log2 == 0) {
      const int end = in_tile(outputs_of_sample(p_.arguments, columns.first_sample), columns.first_position);
      valid.end[0][0] = valid.end[0][1] = valid.end[1][0] = valid.end[1][1] = end;
      valid.whole = end == T::kColumns;
      return valid;
    }
    bool whole = true;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int sample = columns.sample(at_.column(i / 2, i % 2));
      const int end = in_tile(outputs_of_sample(p_.arguments, columns.first_sample + sample), 0) << c_.samples_log2;
      valid.end[i % 2][i / 2] = end;
      whole = whole && end == T::kColumns;
    }
    valid.whole = __all_sync(~0u, whole);
    return valid;
  }

  __device__ __forceinline__ void add_bias(float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float bias = channel(h) < a.o ? load_parameter<Element>(a, a.bias, channel(h)) : 0.0f;
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) d[i / 2 * 4 + 2 * h + i % 2] += bias;
    }
  }

  __device__ __forceinline__ void apply_pre_op(float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
    // relu is not a slope of zero: that would make NaN of minus infinity.
    const bool relu = a.pre == CONVNORM_RELU;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float slope = 0.0f;
      if (!relu && channel(h) < a.o) {
        slope = load_parameter<Element>(a, a.pre_slope, a.pre_slope_per_channel ? channel(h) : 0);
      }
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) {
        float& z = d[i / 2 * 4 + 2 * h + i % 2];
        z = z < 0 ? (relu ? 0.0f : slope * z) : z;
      }
    }
  }

  // Of the block's rows.
  __device__ __forceinline__ const RowParameters& row(int i) const {
    return row_parameters(p_, shared_)[warpgroup_ * kBlockRows + i];
  }
  __device__ __forceinline__ Task* task_table() const {
    return reinterpret_cast<Task*>(shared_ + p_.plan.tasks) + warpgroup_ * 128;
  }

  __device__ __forceinline__ int pieces() const {
    const int last = min((block_ + 1) * kBlockRows, static_cast<int>(p_.arguments.o)) - 1;
    return static_cast<int>(c_.group_rows.divide(last) - c_.group_rows.divide(block_ * kBlockRows)) + 1;
  }

  // As many lanes as leave few idle.
  __device__ __forceinline__ int lanes_log2() const { return pieces() << c_.samples_log2 <= 4 ? 5 : 3; }

  // Of the tasks from `first` on, the one that this thread has a share in.
  __device__ __forceinline__ Task task_of(const Walk& walk, int first) const {
    const int thread = threadIdx.x % 128, group_rows = static_cast<int>(c_.group_rows.value);
    const int task = first + (thread >> lanes_log2()), lane = thread & ((1 << lanes_log2()) - 1);
    const int piece = task >> c_.samples_log2, group = first_group() + piece;
    const int first_channel = block_ * kBlockRows, channels = static_cast<int>(p_.arguments.o);
    Task t = {0, 0, static_cast<uint8_t>(task & (c_.samples - 1)), 0, 0, -1, 0.0f};
    if (piece >= pieces()) return t;
    t.first_row = static_cast<uint8_t>(max(group * group_rows - first_channel, 0));
    t.end_row = static_cast<uint8_t>(min(min((group + 1) * group_rows, channels) - first_channel, kBlockRows));
    const int blocks = ((group + 1) * group_rows - 1) / kBlockRows - group * group_rows / kBlockRows + 1;
    const int participants = blocks * c_.column_tiles;
    t.shared = participants > 1;
    if (t.shared) {
      t.own_word = word_of(walk, group, t.sample, block_, walk.column_tile);
      if (lane < participants) {
        t.word = participant(walk, group, t.sample, outputs_of_sample(p_.arguments, walk.first_sample + t.sample), lane,
                             t.part);
      }
    }
    return t;
  }

  __device__ __forceinline__ int first_group() const {
    return static_cast<int>(c_.group_rows.divide(block_ * kBlockRows));
  }

  // The word and the values of a group's `i`th participant.
  __device__ __forceinline__ int participant(const Walk& walk, int group, int sample, int valid, int i,
                                             float& values) const {
    const int group_rows = static_cast<int>(c_.group_rows.value), first_row = group * group_rows;
    const int below = static_cast<int>(c_.column_tile_divisor.divide(i));
    const int block = first_row / kBlockRows + below, column_tile = i - below * c_.column_tiles;
    const int rows = min(first_row + group_rows, (block + 1) * kBlockRows) - max(first_row, block * kBlockRows);
    values = static_cast<float>(rows) * static_cast<float>(in_tile(valid, column_tile * c_.tile_positions));
    return word_of(walk, group, sample, block, column_tile);
  }

  __device__ __forceinline__ int word_of(const Walk& walk, int group, int sample, int block, int column_tile) const {
    const int row_tile = c_.row_tile_of(block) - walk.first_row_tile;
    const int cta = (walk.iteration & 1) * c_.ctas() + static_cast<int>(blockIdx.y) * c_.team_ctas +
                    row_tile * c_.column_tiles + column_tile;
    const int warpgroup = (cta << c_.warpgroups_log2) + c_.place_of(block);
    const int its_first_group = static_cast<int>(c_.group_rows.divide(block * kBlockRows));
    // Tiles of several samples share only groups that cross the edge of a block: its first and its last.
    const int word = c_.samples == 1 ? group - its_first_group : (group == its_first_group ? 0 : c_.samples) + sample;
    return warpgroup * c_.words_per_warpgroup + word;
  }

  // Spreads of rows -> {mean, rstd} of their groups, in place; what others share is published.
  __device__ __forceinline__ void merge_groups(const Walk& walk) const {
    const int lanes_log2 = this->lanes_log2(), lanes = 1 << lanes_log2, tasks = pieces() << c_.samples_log2;
    const int lane = threadIdx.x & (lanes - 1);
#pragma unroll 1
    for (int first = 0; first < tasks; first += 128 >> lanes_log2) {
      const Task t = first == 0 ? task_table()[threadIdx.x % 128] : task_of(walk, first);
      const int valid = outputs_of_sample(p_.arguments, walk.first_sample + t.sample);
      const auto count = static_cast<float>(in_tile(valid, walk.first_position));
      const Spread group = spread_of(t.first_row < t.end_row, [&](const Scale& scale) {
        return merge_rows(table_, scale, c_.samples_log2, t.sample, t.first_row, t.end_row, count, lanes_log2, lane);
      });
      __syncwarp();  // all lanes of the group have read their rows
      if (!t.shared) {
        write_group(t, lane, lanes, group);
      } else if (lane == 0) {
        publish(p_.slot.words + t.own_word, tag_of(walk), group);
      }
    }
  }

  // The same rows for groups that have other participants.
  __device__ __forceinline__ void gather_groups(const Walk& walk) const {
    const int lanes_log2 = this->lanes_log2(), lanes = 1 << lanes_log2, tasks = pieces() << c_.samples_log2;
    const int lane = threadIdx.x & (lanes - 1);
    const uint64_t tag = tag_of(walk);
#pragma unroll 1
    for (int first = 0; first < tasks; first += 128 >> lanes_log2) {
      const Task t = first == 0 ? task_table()[threadIdx.x % 128] : task_of(walk, first);
      if (!__any_sync(~0u, t.shared)) continue;
      const int valid = outputs_of_sample(p_.arguments, walk.first_sample + t.sample);
      const Spread group = spread_of(t.shared, [&](const Scale& scale) {
        Moments part = {0, 0, 0};
        if (t.word >= 0) {
          part = scale.moments(await(p_.slot.words + t.word, tag, t.part));
          add_participants(walk, t, valid, tag, lane, lanes, scale, part);
        }
        const float count = c_.group_rows.value * static_cast<float>(valid);
        return merge_lanes(part, divide(part.count, count), count, lanes_log2);
      });
      if (t.shared) write_group(t, lane, lanes, group);
    }
  }

  __device__ __forceinline__ uint64_t tag_of(const Walk& walk) const {
    return *reinterpret_cast<const uint64_t*>(shared_ + p_.plan.first_tag) + walk.iteration;
  }

  __device__ __forceinline__ void write_group(const Task& t, int lane, int lanes, const Spread& group) const {
    const float rstd = rstd_of(group, p_.arguments.eps);
#pragma unroll 1
    for (int row = t.first_row + lane; row < t.end_row; row += lanes) {
      table_[(row << c_.samples_log2) + t.sample] = make_float2(group.mean, rstd);
    }
  }

  // Those beyond the lane's first.
  __device__ __forceinline__ void add_participants(const Walk& walk, const Task& t, int valid, uint64_t tag, int lane,
                                                   int lanes, const Scale& scale, Moments& part) const {
    const int group_rows = static_cast<int>(c_.group_rows.value);
    const int group = static_cast<int>(c_.group_rows.divide(block_ * kBlockRows + t.first_row));
    const int blocks = ((group + 1) * group_rows - 1) / kBlockRows - group * group_rows / kBlockRows + 1;
    const int participants = blocks * c_.column_tiles;
    constexpr int kAtOnce = T::kWordsAtOnce;  // on their way before the first of them is waited for
#pragma unroll 1
    for (int first = lane + lanes; first < participants; first += kAtOnce * lanes) {
      const ptx::Word* words[kAtOnce];
      ptx::Word found[kAtOnce];
      float values[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int i = min(first + u * lanes, participants - 1);
        words[u] = p_.slot.words + participant(walk, group, t.sample, valid, i, values[u]);
        found[u] = ptx::load_relaxed(words[u]);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (first + u * lanes < participants) {
          part = merge(part, scale.moments(await(words[u], found[u], tag, values[u])));
        }
      }
    }
  }

  // (z - mean) * (rstd * gamma) + beta for row h of this thread, `blocks` blocks on.
  struct Norm {
    float mean[2][2], factor[2][2];  // [e][parity]
    float beta;

    __device__ __forceinline__ Norm(const Epilogue& of, int h, int blocks) {
      const int its_row = blocks * kBlockRows + of.at_.row + 8 * h;
      const RowParameters parameters = of.row(its_row);
      beta = parameters.beta;
      const int samples_log2 = of.c_.samples_log2;
      const float2* row = of.table_ + (its_row << samples_log2);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 group = row[of.at_.column(i / 2, i % 2) & ((1 << samples_log2) - 1)];
        mean[i % 2][i / 2] = group.x - parameters.bias;
        factor[i % 2][i / 2] = group.y * parameters.gamma;
      }
    }

    __device__ __forceinline__ float operator()(float z, int e, int parity) const {
      return fmaf(z - mean[e][parity], factor[e][parity], beta);
    }
  };

  // The norm of a step's values, of the block `blocks` blocks on.
  __device__ __forceinline__ void normalise(float (&step)[8], int h, int blocks) const {
    if (p_.arguments.groups > 0) {
      const Norm norm(*this, h, blocks);
#pragma unroll
      for (int i = 0; i < 8; ++i) step[i] = norm(step[i], i % 2, i / 2 % 2);
    } else {
      const float beta = row(blocks * kBlockRows + at_.row + 8 * h).beta;
#pragma unroll
      for (int i = 0; i < 8; ++i) step[i] += beta;
    }
  }

  // Eight values at a time, as in finish_in_steps(); the products take the places of the values.
  __device__ __forceinline__ void multiply_by_gates(const Columns& columns, float (&d)[kValues],
                                                    float (&gates)[kValues]) const {
    const Arguments& a = p_.arguments;
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
#pragma unroll 1
      for (int first_tile = 0; first_tile < T::kTiles8; first_tile += 4) {
        float v[8], gate[8];
        take_step(d, v);
        take_step(gates, gate);
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          normalise(v, h, half);
          if (a.glu > 0) {
            apply_ops<Element>(a, 0, a.glu, v, at_, columns, channel(h) + half * static_cast<int>(a.c_y), first_tile);
          }
          swap(v, gate);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) d[kValues - 16 + i / 2 * 4 + i % 2] = v[i] * DeviceMath::sigmoid(gate[i]);
      }
      swap_rows(d);
      swap_rows(gates);
    }
  }

  template <int N>
  static __device__ __forceinline__ void swap(float (&a)[N], float (&b)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float c = a[i];
      a[i] = b[i], b[i] = c;
    }
  }

  // The first four column tiles' values of the upper row; the others move down behind them.
  static __device__ __forceinline__ void take_step(float (&d)[kValues], float (&step)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) step[i] = d[i / 2 * 4 + i % 2];
#pragma unroll
    for (int i = 0; i + 16 < kValues; ++i) {
      if (i % 4 < 2) d[i] = d[i + 16];
    }
  }

  // Row 8 + r takes the place of row r.
  static __device__ __forceinline__ void swap_rows(float (&d)[kValues]) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (i % 4 >= 2) continue;
      const float upper = d[i];
      d[i] = d[i + 2], d[i + 2] = upper;
    }
  }

  // Values are taken to y eight at a time: row h of four column tiles. The accumulators move down behind them, so that
  // the code for all the ops exists once. `from_z`: begin with the norm; then ops from `first_op` on.
  __device__ __forceinline__ void finish_in_steps(const Destination& to, bool from_z, int first_op,
                                                  float (&d)[kValues]) {
    const Arguments& a = p_.arguments;
    const int warp = threadIdx.x / 32;
    StagedRows<Element, T::kTiles8> staged(
        to, at_, threadIdx.x % 32,
        reinterpret_cast<Element*>(shared_ + p_.plan.staging + warp * p_.plan.staging_bytes));
    const bool lane_rows = T::kLaneRows && c_.lane_rows && reinterpret_cast<uintptr_t>(a.y) % 16 == 0;
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
#pragma unroll 1
      for (int first_tile = 0; first_tile < T::kTiles8; first_tile += 4) {
        float step[8];
        if (lane_rows) {
          take_lane_row(d, step);
          normalise_lane_row(step, h, first_tile / 4);
        } else {
          take_step(d, step);
          if (from_z) normalise(step, h, 0);
        }
        if (a.post_count > first_op) {
          apply_ops<Element>(a, first_op, a.post_count, step, at_, to.columns, channel(h), first_tile);
        }
        if (a.lengths != nullptr) clear_invalid(step, to.columns, first_tile);
        if (lane_rows) {
          store_lane_row(step, h, first_tile / 4, to);
        } else if (p_.store == Store::kVectors) {
          store_tiles<Element, 4>(step, at_, h, first_tile, to);
        } else if (p_.store == Store::kStaged) {
          staged.put(step, h, first_tile);
        } else {
          store_elements<Element>(step, at_, h, first_tile, to);
        }
      }
      // Row 8 + r takes the place of row r, whose values need no registers any more.
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        if (i % 4 < 2) d[i] = d[i + 2];
      }
    }
  }

  // Where lanes hold rows (Tiles::lane_rows), a step is one class of columns, (e, parity) or e, of row h, which is of
  // one sample: eight neighbouring positions or, with four samples, every other one of sixteen.
  static __device__ __forceinline__ void take_lane_row(float (&d)[kValues], float (&step)[8]) {
    constexpr int kNext = kValues / 8;  // from a value of a class to its next one
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      step[i] = d[kNext * i], d[kNext * i] = d[kNext * i + 1];
      if constexpr (kNext == 8) d[kNext * i + 1] = d[kNext * i + 4], d[kNext * i + 4] = d[kNext * i + 5];
    }
  }

  __device__ __forceinline__ int sample_of_class(int its_class) const {
    if constexpr (kValues == 64) return 2 * at_.quad + (its_class & 1) + 8 * (its_class >> 1);
    return (2 * at_.quad + its_class) & (c_.samples - 1);
  }

  __device__ __forceinline__ void normalise_lane_row(float (&step)[8], int h, int its_class) const {
    const int its_row = at_.row + 8 * h;
    const RowParameters parameters = row(its_row);
    float mean = 0.0f, factor = 1.0f;
    if (p_.arguments.groups > 0) {
      const float2 group = table_[(its_row << c_.samples_log2) + sample_of_class(its_class)];
      mean = group.x - parameters.bias, factor = group.y * parameters.gamma;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) step[i] = fmaf(step[i] - mean, factor, parameters.beta);
  }

  __device__ __forceinline__ void store_lane_row(float (&step)[8], int h, int its_class, const Destination& to) const {
    int first = 0;  // position
    if (kValues == 32 && c_.samples == 4) {
      // Two lanes have the even and the odd positions of a row; one then has its first half, the other its second.
      const bool upper = at_.quad & 2;
      first = upper ? 8 : 0;
      float low[4], high[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float other = __shfl_xor_sync(~0u, upper ? step[i] : step[4 + i], 2);
        low[i] = upper ? other : step[i], high[i] = upper ? step[4 + i] : other;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) step[2 * i] = low[i], step[2 * i + 1] = high[i];
    }
    const int64_t sample = to.columns.first_sample + sample_of_class(its_class);
    const int its_channel = channel(h);
    if (sample >= to.n || its_channel >= to.channels) return;
    auto* const out = reinterpret_cast<uint4*>(static_cast<Element*>(to.y) + to.index(sample, its_channel, first));
    if constexpr (sizeof(Element) == 4) {
      out[0] = make_uint4(__float_as_uint(step[0]), __float_as_uint(step[1]), __float_as_uint(step[2]),
                          __float_as_uint(step[3]));
      out[1] = make_uint4(__float_as_uint(step[4]), __float_as_uint(step[5]), __float_as_uint(step[6]),
                          __float_as_uint(step[7]));
    } else {
      *out = make_uint4(pack_pair<Element>(step[0], step[1]), pack_pair<Element>(step[2], step[3]),
                        pack_pair<Element>(step[4], step[5]), pack_pair<Element>(step[6], step[7]));
    }
  }

  // Outputs past the end of a sample, which has its tiles for itself, are zeros.
  __device__ __forceinline__ void clear_invalid(float (&step)[8], const Columns& columns, int first_tile) const {
    const int valid = in_tile(outputs_of_sample(p_.arguments, columns.first_sample), columns.first_position);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (at_.column(first_tile + i / 2, i % 2) >= valid) step[i] = 0.0f;
    }
  }

  const Parameters& p_;
  const Tiles& c_;
  unsigned char* const shared_;
  const int warpgroup_;
  const Fragment at_;
  float2* const table_;  // [64 rows][samples]
  int block_ = 0;
};

}  // namespace convnorm::cuda
