// From the slices' moments to what the norm does to every row. A CTA takes whole norm groups of one sample.
#include <cfloat>

#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/squares.cuh"

namespace convnorm::cuda::moments {

namespace {

constexpr int kLanesPerChannel = 4;

// Shared memory, one after the other.
struct Shared {
  double* means;      // [kMostColumns]
  double* products;   // by squares
  Channel* channels;  // of the chunk
  float* centres;     // [C_in/conv_groups]
  float* scale;       // of the inputs
  float* weights;     // [column][channel of the chunk], where there are few

  __device__ __forceinline__ Shared(double* base, const Config& c, int64_t channel_count)
      : means(base),
        products(means + kMostColumns),
        channels(reinterpret_cast<Channel*>(products + squares(c.columns) * kSide * kSide)),
        centres(reinterpret_cast<float*>(channels + channel_count)),
        scale(centres + kMostColumns),
        weights(scale + 4) {}
};

struct Unit {
  int64_t n, conv_group;
  double positions;  // valid outputs
  int slices;        // that have any
};

__device__ __forceinline__ double count_of(const Config& c, const Unit& u, int slice) {
  return min(static_cast<double>(c.slice()), u.positions - static_cast<double>(slice) * c.slice());
}

// Over 2^lanes_log2 neighbouring lanes.
__device__ __forceinline__ double sum_lanes(double value, int lanes_log2) {
  for (int k = 0; k < lanes_log2; ++k) value += __shfl_xor_sync(~0u, value, 1 << k);
  return value;
}

// Sums term(slice, value) over the unit's slices for values [0, values), the same order every time; put(value, sum)
// takes them. Neighbouring lanes share a value: what counts is how many loads are on their way.
template <class Term, class Put>
__device__ __forceinline__ void sum_slices(const Unit& u, int values, const Term& term, const Put& put) {
  const int thread = static_cast<int>(threadIdx.x);
  int lanes_log2 = 0;
  while (lanes_log2 < 5 && 2 * values << lanes_log2 <= kChannelThreads) ++lanes_log2;
  const int lanes = 1 << lanes_log2, at_once = kChannelThreads >> lanes_log2;
  for (int first = 0; first < values; first += at_once) {
    const int value = first + thread / lanes;
    double sum = 0;
    if (value < values) {
#pragma unroll 8
      for (int slice = thread % lanes; slice < u.slices; slice += lanes) sum += term(slice, value);
    }
    sum = sum_lanes(sum, lanes_log2);
    if (thread % lanes == 0 && value < values) put(value, sum);
  }
  __syncthreads();
}

// Means and products of deviations of the unit's columns, by Chan's formula.
__device__ __forceinline__ void merge_slices(const Parameters& p, const Shared& s, const Squares& places,
                                             const Unit& u) {
  const Config& c = p.config;
  const double* records = reinterpret_cast<const double*>(p.workspace + p.places.slices) +
                          (u.n * p.arguments.conv_groups + u.conv_group) * c.slices * c.record();
  sum_slices(
      u, c.columns, [&](int slice, int r) { return count_of(c, u, slice) * records[int64_t{slice} * c.record() + r]; },
      [&](int r, double sum) { s.means[r] = sum / u.positions; });
  sum_slices(
      u, squares(c.columns) * kSide * kSide,
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
// centre than the root of all columns' positions times the largest mean square. By the first warp, columns by its
// lanes.
__device__ __forceinline__ void choose_inputs(const Parameters& p, const Shared& s, const Unit& u) {
  const Arguments& a = p.arguments;
  const int inputs = static_cast<int>(a.c_per_conv_group), taps = static_cast<int>(a.k);
  const int along = squares_along(p.config.columns), lane = static_cast<int>(threadIdx.x);
  if (lane < 32) {
    double largest = 0;
    for (int r = lane; r < p.config.columns; r += 32) {
      const float centre = p.config.stream.parts > 1 ? static_cast<float>(s.means[r / taps * taps]) : 0.0f;
      s.centres[r / taps] = centre;  // by all taps' lanes alike
      const double distance = s.means[r] - static_cast<double>(centre);
      const double square = fma(distance * distance, u.positions, s.products[product_at(r, r, along)]);
      largest = square > largest ? square : largest;
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask <<= 1) {
      const double other = __shfl_xor_sync(~0u, largest, mask);
      largest = other > largest ? other : largest;
    }
    float scale = 1;
    if (p.config.stream.parts > 1 && largest > 0 && largest < 1e300) {
      int exponent = 0;
      frexp(sqrt(largest / u.positions), &exponent);
      scale = ldexpf(1.0f, -min(max(exponent, -100), 120));
    }
    if (lane == 0) *s.scale = scale;
  }
  __syncthreads();
  float* to =
      reinterpret_cast<float*>(p.workspace + p.places.inputs) + (u.n * a.conv_groups + u.conv_group) * (1 + inputs);
  for (int i = lane; i <= inputs; i += kChannelThreads) to[i] = i == 0 ? *s.scale : s.centres[i - 1];
}

// fp32 weights [column][step] of a conv group, from its first channel on.
struct Weights {
  const float* first;
  int64_t step;
};

__device__ __forceinline__ Weights packed_weights(const Parameters& p, int64_t conv_group) {
  const Arguments& a = p.arguments;
  const auto* plain =
      reinterpret_cast<const float*>(static_cast<const unsigned char*>(a.packed_weight()) + p.packed.plain);
  return {plain + conv_group * p.config.columns * a.o_per_conv_group, a.o_per_conv_group};
}

// Of the channels [first, end) of a conv group.
__device__ __forceinline__ void stage_weights(const Parameters& p, const Shared& s, int64_t conv_group, int64_t first,
                                              int64_t end) {
  const Weights from = packed_weights(p, conv_group);
  const int channels = static_cast<int>(end - first), count = channels * p.config.columns;
  const float* w = from.first + (first - conv_group * p.arguments.o_per_conv_group);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kChannelThreads) {
    const int column = i / channels;
    s.weights[i] = w[column * from.step + i - column * channels];
  }
}

// Moments of the channels [first, end) of a conv group, each by a few lanes.
__device__ __forceinline__ void measure_channels(const Parameters& p, const Shared& s, const Weights& weights,
                                                 int64_t first, int64_t end, int64_t chunk_first) {
  const Arguments& a = p.arguments;
  const int columns = p.config.columns, taps = static_cast<int>(a.k), along = squares_along(columns);
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerChannel;
  constexpr int kAtOnce = kChannelThreads / kLanesPerChannel;
  for (int64_t o0 = first; o0 < end; o0 += kAtOnce) {
    const int64_t o = o0 + static_cast<int>(threadIdx.x) / kLanesPerChannel;
    const bool exists = o < end;
    const float* w = weights.first + (exists ? o - first : 0);
    double constant = 0, mean = 0, m2 = 0;
    for (int i = lane; i < columns; i += kLanesPerChannel) {
      const double wi = w[i * weights.step], centre = s.centres[i / taps];
      constant = fma(wi, centre, constant);
      mean = fma(wi, s.means[i] - centre, mean);
      double sum = 0;
#pragma unroll 4
      for (int j = i + 1; j < columns; ++j) {
        sum = fma(static_cast<double>(w[j * weights.step]), s.products[product_at(i, j, along)], sum);
      }
      m2 = fma(wi, fma(wi, s.products[product_at(i, i, along)], 2 * sum), m2);
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

__device__ __forceinline__ float clamped(double value) {
  return static_cast<float>(value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value);
}

// The groups of the chunk, each by as many lanes of a warp as it has channels, and the rows of their channels.
__device__ __forceinline__ void write_rows(const Parameters& p, const Shared& s, int64_t n, int64_t first_group,
                                           int64_t end_group, double positions) {
  const Arguments& a = p.arguments;
  const int of_group = static_cast<int>(a.o_per_norm_group), thread = static_cast<int>(threadIdx.x);
  int lanes_log2 = 0;
  while (lanes_log2 < 5 && 1 << lanes_log2 < of_group) ++lanes_log2;
  const int lanes = 1 << lanes_log2, lane = thread % lanes;
  const auto* inputs = reinterpret_cast<const float*>(p.workspace + p.places.inputs);
  const recompute::Config& stream = p.config.stream;
  const auto* scales =
      reinterpret_cast<const float*>(static_cast<const unsigned char*>(a.packed_weight()) + p.packed.stream.scales);
  auto* rows = reinterpret_cast<recompute::Row*>(p.workspace + p.places.rows);
  const int gates = a.glu < a.post_count ? static_cast<int>(a.c_y) : 0;
  const double fault = packed_fault(a);
  for (int64_t g0 = first_group; g0 < end_group; g0 += kChannelThreads / lanes) {
    const int64_t g = g0 + thread / lanes;
    const bool exists = g < end_group;
    const Channel* channels = s.channels + (exists ? g - first_group : 0) * of_group;
    double sum = 0, m2 = 0;
    for (int i = lane; i < of_group; i += lanes) sum += channels[i].constant + channels[i].mean;
    const double mean = sum_lanes(sum, lanes_log2) / of_group;
    for (int i = lane; i < of_group; i += lanes) {
      const double distance = of_group == 1 ? 0 : channels[i].constant + channels[i].mean - mean;
      m2 += channels[i].m2 + positions * distance * distance;
    }
    m2 = sum_lanes(m2, lanes_log2);
    if (!exists) continue;
    const double variance = m2 / (positions * of_group);
    const double rstd = 1 / sqrt(variance + a.eps) + fault;
    for (int i = lane; i < of_group; i += lanes) {
      const int64_t o = g * of_group + i, conv_group = o / a.o_per_conv_group;
      const int64_t unit = n * a.conv_groups + conv_group;
      const int row = stream.row_of(static_cast<int>(o - conv_group * a.o_per_conv_group), gates);
      // Powers of two.
      const double by =
          static_cast<double>(inputs[unit * (1 + a.c_per_conv_group)]) * scales[conv_group * stream.rows() + row];
      const double gamma = a.gamma != nullptr ? load(a.gamma, a.param_dtype, o) : 1.0f;
      const double beta = a.beta != nullptr ? load(a.beta, a.param_dtype, o) : 0.0f;
      const double shift = of_group == 1 ? -channels[i].mean : channels[i].constant - mean;
      const double slope = rstd * gamma, scale = slope > FLT_MAX ? FLT_MAX : slope < -FLT_MAX ? -FLT_MAX : slope;
      rows[unit * stream.rows() + row] = {clamped(scale / by), clamped(fma(shift, scale, beta))};
    }
  }
}

__global__ void __launch_bounds__(kChannelThreads) channels_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ double shared[];
  __shared__ Squares places;
  let_successor_begin();
  const Arguments& a = p.arguments;
  const Config& c = p.config;
  const int64_t n = blockIdx.x / c.chunks, chunk = blockIdx.x % c.chunks;
  const int64_t first_group = chunk * c.chunk_groups, end_group = min(first_group + c.chunk_groups, a.groups);
  const int64_t first = first_group * a.o_per_norm_group, end = end_group * a.o_per_norm_group;
  const Shared s(shared, c, c.chunk_groups * a.o_per_norm_group);
  const bool staged = c.chunk_groups * a.o_per_norm_group <= kStagedChannels;
  const int64_t first_conv_group = first / a.o_per_conv_group;
  const auto end_in = [&](int64_t conv_group) { return min(end, (conv_group + 1) * a.o_per_conv_group); };
  places.fill(c.columns);
  if (staged) stage_weights(p, s, first_conv_group, first, end_in(first_conv_group));
  __syncthreads();
  // By every CTA, so that this launch does not end before the first.
  wait_for_predecessor();
  const int64_t positions = valid_outputs(a, sample_length(a, n));
  if (positions == 0) return;  // y is zeros, whatever the rows
  Unit u = {n, first_conv_group, static_cast<double>(positions),
            static_cast<int>((positions + c.slice() - 1) / c.slice())};
  for (; u.conv_group * a.o_per_conv_group < end; ++u.conv_group) {
    const int64_t own_first = max(first, u.conv_group * a.o_per_conv_group), own_end = end_in(u.conv_group);
    merge_slices(p, s, places, u);
    choose_inputs(p, s, u);
    Weights weights = packed_weights(p, u.conv_group);
    weights.first += own_first - u.conv_group * a.o_per_conv_group;
    if (staged) {
      if (u.conv_group > first_conv_group) {
        stage_weights(p, s, u.conv_group, own_first, own_end);
        __syncthreads();
      }
      weights = {s.weights, own_end - own_first};
    }
    measure_channels(p, s, weights, own_first, own_end, first);
    __syncthreads();
  }
  write_rows(p, s, n, first_group, end_group, static_cast<double>(positions));
}

}  // namespace

void launch_channels(const Parameters& p, cudaStream_t stream) {
  launch("launching moments' channels", channels_kernel,
         {.grid = dim3(static_cast<unsigned>(p.arguments.n * p.config.chunks)),
          .block = dim3(kChannelThreads),
          .shared_bytes = static_cast<size_t>(channels_bytes(p.config, p.arguments.o_per_norm_group)),
          .programmatic = p.config.dependent},
         stream, p);
}

}  // namespace convnorm::cuda::moments
