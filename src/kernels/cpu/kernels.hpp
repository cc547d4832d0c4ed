// What a CPU strategy may call: one table of functions per instruction set. Strategies are plain C++; everything that
// touches vectors lives in the *-inl.h files, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "convnorm/convnorm.h"

namespace convnorm::cpu {

// Mean and centred sum of squares of `count` values; combined by Chan's formula, always in the same order.
struct Moments {
  double count = 0;
  double mean = 0;
  double m2 = 0;
};

inline void merge(Moments& a, const Moments& b) {
  if (b.count == 0) return;
  const double count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  a.mean += delta * share;
  a.m2 += b.m2 + delta * delta * a.count * share;
  a.count = count;
}

// Part of one padded row of x as fp32: row[j] = x[first + j * every] of one channel, j in [0, count); outside [0,
// length) the padding.
struct FetchRow {
  const void* x;   // element 0 of the channel's row
  int64_t step;    // elements between neighbours along L: 1, or C_in for channels last
  int64_t length;  // valid inputs
  int64_t first;   // index of row[0], may be negative
  int64_t every;
  int64_t count;
  int64_t reach_left, reach_right;  // pad_left, pad_right: beyond them nothing is read by a valid output
  convnorm_dtype dtype;
  convnorm_padding pad;
};

// A block of the convolution with L as the vector dimension: rows of w against a strip of packed x.
struct RowConv {
  const float* x;  // packed strip; row of channel c at x + c * x_row
  int64_t x_row;
  const int64_t* tap_offset;  // taps: where in a row the input of tap t begins
  int64_t channels, taps;     // of this chunk
  const float* w;             // packed rows; the tile that starts at row r begins at w + r * steps
  int64_t steps;              // C_in/conv_groups * K: floats per row in all chunks together
  int64_t steps_before;       // steps of the chunks before this one
  int64_t rows;               // output channels
  int64_t panels;             // strip length / panel width
  float* z;                   // row r at z + r * z_row
  int64_t z_row;
  const float* bias;  // rows, or null; first chunk only
  bool first;         // start from the bias instead of from z
};

// The same with output channels as the vector dimension, for few positions.
struct ChannelConv {
  const float* x;  // as above
  int64_t x_row;
  const int64_t* tap_offset;
  int64_t channels, taps;
  const void* w;  // this chunk of one block of channel_block output channels: (channels, taps, block)
  convnorm_dtype w_dtype;
  int64_t positions;
  float* z;  // position m at z + m * channel_block; added to
};

// What follows the norm, for one segment of one row. Values are fp32.
struct NormRow {
  const float* z;
  float* out;
  int64_t count;
  float mean_high, mean_low;  // mean = high + low
  float scale;                // rstd * gamma
  float shift;                // beta
  bool normalise;             // false: z passes unchanged
  bool stream = false;        // store past the caches
};

// Rows are dealt to ceil(rows / most) tiles whose heights differ by at most one; the weight packer does the same.
inline int64_t tile_height(int64_t rows, int64_t most, int64_t tile) {
  const int64_t tiles = (rows + most - 1) / most;
  return rows / tiles + (tile < rows % tiles);
}

inline constexpr int64_t kMostMomentColumns = 16;

struct Kernels {
  const char* target;
  int64_t lanes;       // floats in a vector
  int64_t wide_panel;  // positions of a panel, up to wide_rows rows at a time
  int64_t wide_rows;
  int64_t narrow_panel;   // positions of a panel, one row at a time
  int64_t channel_block;  // output channels of a ChannelConv

  void (*fetch_row)(const FetchRow&, float* row);
  // phase[j] = row[j * stride] for count values.
  void (*take_every)(const float* row, int64_t stride, float* phase, int64_t count);
  // The same for all phases: phases[f * phase_row + j] = row[j * stride + f] for f in [0, stride).
  void (*deal_phases)(const float* row, int64_t stride, float* phases, int64_t phase_row, int64_t count);
  void (*conv_wide)(const RowConv&);
  void (*conv_narrow)(const RowConv&);
  void (*conv_channels)(const ChannelConv&);
  Moments (*row_moments)(const float* row, int64_t count);
  // Of columns[i][0, count): means, and sums of products of deviations, upper triangle by rows. At most
  // kStatisticsBlock values of kMostMomentColumns columns.
  void (*column_moments)(const float* const* columns, int64_t column_count, int64_t count, double* means,
                         double* products);
  // Norm, then one pointwise operation (CONVNORM_NONE: none), in one pass.
  void (*norm_row)(const NormRow&, convnorm_op op, float param);
  void (*pointwise)(float* row, int64_t count, convnorm_op op, float param);
  void (*film)(float* row, int64_t count, float scale, float shift);
  void (*add)(float* row, const float* other, int64_t count);
  void (*glu)(float* a, const float* b, int64_t count);  // a *= sigmoid(b)
  // Contiguous conversions; `stream` bypasses the caches.
  void (*to_float)(const void* from, convnorm_dtype dtype, float* to, int64_t count);
  void (*from_float)(const float* from, void* to, convnorm_dtype dtype, int64_t count, bool stream);
  double (*fma_chains)(int64_t rounds);  // returns the number of floating-point operations done
  void (*copy)(const float* from, float* to, int64_t count);
};

// Null if `target` is not compiled in or not present.
const Kernels* find_kernels(const std::string& target);

}  // namespace convnorm::cpu
