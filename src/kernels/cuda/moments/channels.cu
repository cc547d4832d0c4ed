// From the slices' moments to what the norm does to every row. A CTA takes whole norm groups of one sample.
#include <cfloat>

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/dependent.cuh"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/squares.cuh"

namespace convnorm::cuda::moments {

namespace {

constexpr int kLanesPerChannel = 4;

// Shared memory, one after the other.
struct Shared {
  double* means;      // [kMostColumns]
  double* products;   // by squares
  double* partial;    // [kThreads]
  Channel* channels;  // of the chunk
  float* centres;     // [C_in/conv_groups]
  float* scale;       // of the inputs

  __device__ __forceinline__ Shared(double* base, const Config& c, int64_t channel_count)
      : means(base),
        products(means + kMostColumns),
        partial(products + squares(c.columns) * kSide * kSide),
        channels(reinterpret_cast<Channel*>(partial + kThreads)),
        centres(reinterpret_cast<float*>(channels + channel_count)),
        scale(centres + kMostColumns) {}
};

struct Unit {
  int64_t n, conv_group;
  double positions;  // valid outputs
  int slices;        // that have any
};

__device__ __forceinline__ double count_of(const Config& c, const Unit& u, int slice) {
  return min(static_cast<double>(c.slice()), u.positions - static_cast<double>(slice) * c.slice());
}

// Sums term(slice) over the unit's slices by neighbouring threads `part` of `parts`, the same order every time, for
// values [0, values); put(value, sum) takes them.
template <class Term, class Put>
__device__ __forceinline__ void sum_slices(const Shared& s, const Unit& u, int values, const Term& term, const Put& put) {
  const int thread = static_cast<int>(threadIdx.x);
  int parts = 1;
  while (2 * parts * values <= kThreads && parts < 16) parts *= 2;
  const int at_once = kThreads / parts;
  for (int first = 0; first < values; first += at_once) {
    const int value = first + thread % at_once, part = thread / at_once;
    double sum = 0;
    if (value < values) {
#pragma unroll 4
      for (int slice = part; slice < u.slices; slice += parts) sum += term(slice, value);
    }
    s.partial[thread] = sum;
    __syncthreads();
    if (part == 0 && value < values) {
      for (int i = 1; i < parts; ++i) sum += s.partial[i * at_once + value - first];
      put(value, sum);
    }
    __syncthreads();
  }
}

// Means and products of deviations of the unit's columns, by Chan's formula.
__device__ __forceinline__ void merge_slices(const Parameters& p, const Shared& s, const Squares& places, const Unit& u) {
  const Config& c = p.config;
  const double* records = reinterpret_cast<const double*>(p.workspace + p.places.slices) +
                          (u.n * p.arguments.conv_groups + u.conv_group) * c.slices * c.record();
  sum_slices(
      s, u, c.columns,
      [&](int slice, int r) { return count_of(c, u, slice) * records[int64_t{slice} * c.record() + r]; },
      [&](int r, double sum) { s.means[r] = sum / u.positions; });
  sum_slices(
      s, u, squares(c.columns) * kSide * kSide,
      [&](int slice, int at) {
        const int square = at / (kSide * kSide);
        const int i = places.row(square) * kSide + at / kSide % kSide, j = places.column(square) * kSide + at % kSide;
        if (i >= c.columns || j >= c.columns) return 0.0;
        const double* record = records + int64_t{slice} * c.record();
        return record[c.columns + at] + count_of(c, u, slice) * (record[i] - s.means[i]) * (record[j] - s.means[j]);
      },
      [&](int at, double sum) { s.products[at] = sum; });
}

// Centres and scale of the inputs, such that none leaves the range of 16-bit halves: an input is no further from its
// centre than the root of all columns' positions times the largest mean square.
__device__ __forceinline__ void choose_inputs(const Parameters& p, const Shared& s, const Unit& u) {
  const Arguments& a = p.arguments;
  const int inputs = static_cast<int>(a.c_per_conv_group), taps = static_cast<int>(a.k);
  const int along = squares_along(p.config.columns);
  if (threadIdx.x == 0) {
    double largest = 0;
    for (int r = 0; r < p.config.columns; ++r) {
      const float centre = p.config.parts > 1 ? static_cast<float>(s.means[r / taps * taps]) : 0.0f;
      s.centres[r / taps] = centre;
      const double distance = s.means[r] - static_cast<double>(centre);
      const double square = s.products[product_at(r, r, along)] / u.positions + distance * distance;
      largest = square > largest ? square : largest;
    }
    float scale = 1;
    if (p.config.parts > 1 && largest > 0 && largest < 1e300) {
      int exponent = 0;
      frexp(sqrt(largest), &exponent);
      exponent = min(max(exponent, -100), 120);
      scale = ldexpf(1.0f, -exponent);
    }
    *s.scale = scale;
  }
  __syncthreads();
  float* to = reinterpret_cast<float*>(p.workspace + p.places.inputs) + (u.n * a.conv_groups + u.conv_group) * (1 + inputs);
  for (int i = static_cast<int>(threadIdx.x); i <= inputs; i += kThreads) to[i] = i == 0 ? *s.scale : s.centres[i - 1];
}

// Moments of the channels [first, end) of a conv group, each by a few lanes.
__device__ __forceinline__ void measure_channels(const Parameters& p, const Shared& s, const Unit& u, int64_t first,
                                                 int64_t end, int64_t chunk_first) {
  const Arguments& a = p.arguments;
  const int columns = p.config.columns, taps = static_cast<int>(a.k), along = squares_along(columns);
  const int64_t channels = a.o_per_conv_group;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerChannel;
  const float* plain = reinterpret_cast<const float*>(static_cast<const unsigned char*>(a.packed_weight()) + p.packed.plain) +
                       u.conv_group * columns * channels;
  const int at_once = kThreads / kLanesPerChannel;
  const int64_t first_of_group = u.conv_group * channels;
  for (int64_t o0 = first; o0 < end; o0 += at_once) {
    const int64_t o = o0 + static_cast<int>(threadIdx.x) / kLanesPerChannel;
    const bool exists = o < end;
    const float* w = plain + (exists ? o - first_of_group : 0);
    double constant = 0, mean = 0, m2 = 0;
    for (int i = lane; i < columns; i += kLanesPerChannel) {
      const double wi = w[i * channels], centre = s.centres[i / taps];
      constant += wi * centre;
      mean += wi * (s.means[i] - centre);
      double sum = 0;
      for (int j = i + 1; j < columns; ++j) sum += static_cast<double>(w[j * channels]) * s.products[product_at(i, j, along)];
      m2 += wi * (wi * s.products[product_at(i, i, along)] + 2 * sum);
    }
#pragma unroll
    for (int mask = 1; mask < kLanesPerChannel; mask <<= 1) {
      constant += __shfl_xor_sync(~0u, constant, mask);
      mean += __shfl_xor_sync(~0u, mean, mask);
      m2 += __shfl_xor_sync(~0u, m2, mask);
    }
    if (!exists || lane != 0) continue;
    if (a.bias != nullptr) constant += load(a.bias, a.param_dtype, o);
    // Rounding may leave less than nothing; NaN stays.
    s.channels[o - chunk_first] = {constant, mean, m2 < 0 ? 0 : m2};
  }
}

__device__ __forceinline__ double sum_warp(double value) {
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) value += __shfl_xor_sync(~0u, value, mask);
  return value;
}

__device__ __forceinline__ float clamped(double value) {
  return static_cast<float>(value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value);
}

// Row of the packed weight that holds channel `o` of a conv group.
__device__ __forceinline__ int row_of(const Arguments& a, const Config& c, int o) {
  const int half = a.glu < a.post_count ? static_cast<int>(a.c_y) : 0;
  const bool gate = half > 0 && o >= half;
  const int channel = gate ? o - half : o, in_class = channel / c.classes;
  const int block = channel % c.classes * c.class_blocks + in_class / c.block_channels;
  return block * kBlockRows + in_class % c.block_channels + (gate ? c.block_channels : 0);
}

// The groups of the chunk, a warp for each, and the rows of their channels.
__device__ __forceinline__ void write_rows(const Parameters& p, const Shared& s, int64_t n, int64_t first_group,
                                           int64_t end_group, double positions) {
  const Arguments& a = p.arguments;
  const int lane = static_cast<int>(threadIdx.x) % 32, of_group = static_cast<int>(a.o_per_norm_group);
  const auto* inputs = reinterpret_cast<const float*>(p.workspace + p.places.inputs);
  const auto* scales = reinterpret_cast<const float*>(static_cast<const unsigned char*>(a.packed_weight()) + p.packed.scales);
  Row* rows = reinterpret_cast<Row*>(p.workspace + p.places.rows);
  const double fault = packed_fault(a);
  for (int64_t g = first_group + static_cast<int>(threadIdx.x) / 32; g < end_group; g += kWarps) {
    const Channel* channels = s.channels + (g - first_group) * of_group;
    double sum = 0, m2 = 0;
    for (int i = lane; i < of_group; i += 32) sum += channels[i].constant + channels[i].mean;
    const double mean = sum_warp(sum) / of_group;
    for (int i = lane; i < of_group; i += 32) {
      const double distance = of_group == 1 ? 0 : channels[i].constant + channels[i].mean - mean;
      m2 += channels[i].m2 + positions * distance * distance;
    }
    m2 = sum_warp(m2);
    const double variance = positions > 0 ? m2 / (positions * of_group) : 0;
    const double rstd = 1 / sqrt(variance + a.eps) + fault;
    for (int i = lane; i < of_group; i += 32) {
      const int64_t o = g * of_group + i, conv_group = o / a.o_per_conv_group;
      const int64_t unit = n * a.conv_groups + conv_group;
      const int row = row_of(a, p.config, static_cast<int>(o - conv_group * a.o_per_conv_group));
      const double by = static_cast<double>(inputs[unit * (1 + a.c_per_conv_group)]) *
                        scales[conv_group * p.config.rows() + row];
      const double gamma = a.gamma != nullptr ? load(a.gamma, a.param_dtype, o) : 1.0f;
      const double shift = of_group == 1 ? -channels[i].mean : channels[i].constant - mean;
      rows[unit * p.config.rows() + row] = {static_cast<float>(shift * by), clamped(rstd * gamma / by),
                                            a.beta != nullptr ? load(a.beta, a.param_dtype, o) : 0.0f, 0.0f};
    }
  }
}

__global__ void __launch_bounds__(kThreads) channels_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ double shared[];
  __shared__ Squares places;
  let_successor_begin();
  const Arguments& a = p.arguments;
  const Config& c = p.config;
  const int64_t n = blockIdx.x / c.chunks, chunk = blockIdx.x % c.chunks;
  const int64_t first_group = chunk * c.chunk_groups, end_group = min(first_group + c.chunk_groups, a.groups);
  const int64_t first = first_group * a.o_per_norm_group, end = end_group * a.o_per_norm_group;
  const Shared s(shared, c, c.chunk_groups * a.o_per_norm_group);
  const int64_t positions = valid_outputs(a, sample_length(a, n));
  places.fill(c.columns);
  __syncthreads();
  // By every CTA, so that this launch does not end before the first.
  wait_for_predecessor();
  if (positions == 0) return;  // y is zeros, whatever the rows
  Unit u = {n, 0, static_cast<double>(positions), static_cast<int>((positions + c.slice() - 1) / c.slice())};
  for (u.conv_group = first / a.o_per_conv_group; u.conv_group * a.o_per_conv_group < end; ++u.conv_group) {
    merge_slices(p, s, places, u);
    choose_inputs(p, s, u);
    measure_channels(p, s, u, max(first, u.conv_group * a.o_per_conv_group),
                     min(end, (u.conv_group + 1) * a.o_per_conv_group), first);
    __syncthreads();
  }
  write_rows(p, s, n, first_group, end_group, u.positions);
}

}  // namespace

void launch_channels(const Parameters& p, cudaStream_t stream) {
  launch("launching moments' channels", channels_kernel,
         {.grid = dim3(static_cast<unsigned>(p.arguments.n * p.config.chunks)),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<size_t>(channels_bytes(p.config, p.arguments.o_per_norm_group)),
          .programmatic = p.config.dependent},
         stream, p);
}

}  // namespace convnorm::cuda::moments
