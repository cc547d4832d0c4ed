// From the slices' moments to what the norm does to every row. A CTA takes whole norm groups of one sample.
#include <cfloat>

#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/collective/slots.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/sample.cuh"

namespace convnorm::cuda::moments {

namespace {

__device__ __forceinline__ int threads() { return static_cast<int>(blockDim.x); }

// Shared memory, one after the other.
struct Shared {
  double* pilots;      // [C_in/conv_groups]
  double* means;       // [column], distances from the pilots
  double* sums;        // [part][record], of the slices that a part takes
  double* deviations;  // [column][column], the upper triangle: sums of products
  Channel* channels;   // of the chunk
  Given* given;        // of its channels, where there are few
  float* weights;      // [column][channel of the chunk], as well

  __device__ __forceinline__ Shared(double* base, const Config& c, int64_t channel_count)
      : pilots(base),
        means(pilots + kMostColumns),
        sums(means + kMostColumns),
        deviations(sums + c.merge_parts() * c.record()),
        channels(reinterpret_cast<Channel*>(deviations + c.columns * c.columns)),
        given(reinterpret_cast<Given*>(channels + channel_count)),
        weights(reinterpret_cast<float*>(given + (stages(c, channel_count) ? channel_count : 0))) {}
};

// Of a channel of z: what the norm takes, and its place among the rows of the last launch.
__device__ __forceinline__ Given given_to(const Parameters& p, int o) {
  const Arguments& a = p.arguments;
  const recompute::Config& stream = p.config.stream;
  const auto* scales =
      reinterpret_cast<const float*>(static_cast<const unsigned char*>(a.packed_weight()) + p.packed.stream.scales);
  const int of_conv_group = static_cast<int>(a.o_per_conv_group), conv_group = o / of_conv_group;
  Given g = {0, 1, 0, 1, conv_group, 0};
  g.row = stream.row_of(o - conv_group * of_conv_group, a.glu < a.post_count ? static_cast<int>(a.c_y) : 0);
  g.scale = __ldg(scales + int64_t{conv_group} * stream.rows() + g.row);
  if (a.bias != nullptr) g.bias = load(a.bias, a.param_dtype, o);
  if (a.gamma != nullptr) g.gamma = load(a.gamma, a.param_dtype, o);
  if (a.beta != nullptr) g.beta = load(a.beta, a.param_dtype, o);
  return g;
}

// Over 2^lanes_log2 neighbouring lanes.
__device__ __forceinline__ double sum_lanes(double value, int lanes_log2) {
  for (int k = 0; k < lanes_log2; ++k) value += __shfl_xor_sync(~0u, value, 1 << k);
  return value;
}

struct Unit {
  int n, conv_group;
  double positions, inverse;  // valid outputs, and one over them
  int slices;                 // that have any
};

__device__ __forceinline__ void find_pilots(const Parameters& p, const Shared& s, const Unit& u) {
  const Arguments& a = p.arguments;
  const auto find = [&](auto type) {
    const recompute::Source<decltype(type)> x(a, u.n, u.conv_group, 0, static_cast<int>(sample_length(a, u.n)));
    for (int c = static_cast<int>(threadIdx.x); c < static_cast<int>(a.c_per_conv_group); c += threads())
      s.pilots[c] = pilot_of(x, x.first + c * x.channel);
  };
  if (a.dtype == CONVNORM_F32) return find(float{});
  if (a.dtype == CONVNORM_F16) return find(__half{});
  find(__nv_bfloat16{});
}

// Means and products of deviations of the unit's columns. The same order every time; what counts is how many loads are
// on their way.
__device__ __forceinline__ void merge_slices(const Parameters& p, const Shared& s, const Unit& u) {
  const Config& c = p.config;
  const int record = c.record(), parts = c.merge_parts(), thread = static_cast<int>(threadIdx.x);
  const double* const records = reinterpret_cast<const double*>(p.workspace + p.places.slices) +
                                (int64_t{u.n} * p.arguments.conv_groups + u.conv_group) * c.slices * record;
#pragma unroll 1
  for (int item = thread; item < parts * record; item += threads()) {
    const int part = item / record;
    const double* const from = records + item - part * record;
    constexpr int kAtOnce = 24;
    double sum = 0;
#pragma unroll 1
    for (int first = part; first < u.slices; first += kAtOnce * parts) {
      double value[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int slice = first + i * parts;
        value[i] = slice < u.slices ? from[slice * record] : 0.0;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sum += value[i];
    }
    s.sums[item] = sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int item = thread; item < record; item += threads()) {
    double sum = 0;
#pragma unroll 4
    for (int part = 0; part < parts; ++part) sum += s.sums[item + part * record];
    s.sums[item] = sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int at = thread; at < c.columns * c.columns; at += threads()) {
    const int i = at / c.columns, j = at - i * c.columns;
    if (i > j) continue;
    const double* const sums = s.sums;
    const double mean = sums[product_at(i, c.columns, c.columns)] * u.inverse;
    s.deviations[at] = fma(-mean, sums[product_at(j, c.columns, c.columns)], sums[product_at(i, j, c.columns)]);
    if (i == j) s.means[i] = mean;
  }
  __syncthreads();
}

// Centre of the inputs of channel `channel`, near the mean under one tap.
__device__ __forceinline__ float centre_of(const Parameters& p, const Shared& s, int channel) {
  if (p.config.stream.parts == 1) return 0.0f;
  return static_cast<float>(s.pilots[channel] + s.means[channel * static_cast<int>(p.arguments.k)]);
}

// Centres and scale of the inputs, such that none leaves the range of 16-bit halves: an input is no further from its
// centre than the root of all columns' positions times the largest mean square. Every warp finds the scale, columns by
// its lanes; the first writes.
__device__ __forceinline__ float choose_inputs(const Parameters& p, const Shared& s, const Unit& u) {
  const Arguments& a = p.arguments;
  const int inputs = static_cast<int>(a.c_per_conv_group), taps = static_cast<int>(a.k);
  const int columns = p.config.columns, lane = static_cast<int>(threadIdx.x) % 32;
  double largest = 0;
  for (int r = lane; r < columns; r += 32) {
    const int channel = r / taps;
    const double distance = s.means[r] + (s.pilots[channel] - double{centre_of(p, s, channel)});
    const double square = fma(distance * distance, u.positions, s.deviations[r * columns + r]);
    largest = square > largest ? square : largest;
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) {
    const double other = __shfl_xor_sync(~0u, largest, mask);
    largest = other > largest ? other : largest;
  }
  // Of the root of the mean square, which is below 2^exponent.
  const int exponent = ((__double2hiint(largest * u.inverse) >> 20) - 1022 + 1) >> 1;
  const bool scaled = p.config.stream.parts > 1 && largest > 0 && largest < 1e300;
  const float scale = scaled ? __int_as_float((127 - min(max(exponent, -100), 120)) << 23) : 1.0f;
  float* to = reinterpret_cast<float*>(p.workspace + p.places.inputs) +
              (int64_t{u.n} * a.conv_groups + u.conv_group) * (1 + inputs);
  for (int i = static_cast<int>(threadIdx.x); i <= inputs && threadIdx.x < 32; i += 32)
    to[i] = i == 0 ? scale : centre_of(p, s, i - 1);
  return scale;
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

__device__ __forceinline__ void stage_weights(const Weights& from, const Shared& s, int channels, int columns) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < columns * channels; i += threads()) {
    const int column = i / channels;
    s.weights[i] = from.first[column * from.step + i - column * channels];
  }
}

// Moments of `count` channels of a conv group, each by half a warp, columns by its lanes.
__device__ __forceinline__ void measure_channels(const Parameters& p, const Shared& s, const Weights& weights,
                                                 float scale, int count, Channel* channels) {
  const int columns = p.config.columns, taps = static_cast<int>(p.arguments.k);
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerChannel;
  const int at_once = threads() / kLanesPerChannel;
#pragma unroll 1
  for (int first = 0; first < count; first += at_once) {
    const int channel = first + static_cast<int>(threadIdx.x) / kLanesPerChannel;
    const bool exists = channel < count;
    const float* const w = weights.first + (exists ? channel : 0);
    double constant = 0, mean = 0, m2 = 0;
#pragma unroll 1
    for (int i = lane; i < columns; i += kLanesPerChannel) {
      const double wi = w[i * weights.step], centre = centre_of(p, s, i / taps);
      constant = fma(wi, centre, constant);
      mean = fma(wi, s.means[i] + (s.pilots[i / taps] - centre), mean);
      double sum = 0;
#pragma unroll 4
      for (int j = i + 1; j < columns; ++j) {
        sum = fma(static_cast<double>(w[j * weights.step]), s.deviations[i * columns + j], sum);
      }
      m2 = fma(wi, fma(wi, s.deviations[i * columns + i], 2 * sum), m2);
    }
#pragma unroll
    for (int mask = 1; mask < kLanesPerChannel; mask <<= 1) {
      constant += __shfl_xor_sync(~0u, constant, mask);
      mean += __shfl_xor_sync(~0u, mean, mask);
      m2 += __shfl_xor_sync(~0u, m2, mask);
    }
    // Rounding may leave less than nothing; NaN stays.
    if (exists && lane == 0) channels[channel] = {constant, mean, m2 < 0 ? 0 : m2, scale};
  }
}

__device__ __forceinline__ float clamped(double value) {
  return static_cast<float>(value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value);
}

// Of a power of two.
__device__ __forceinline__ double inverse_of(double power) {
  return __hiloint2double((2046 << 20) - __double2hiint(power), 0);
}

// The groups of the chunk, each by as many lanes of a warp as it has channels, and the rows of their channels. given(i)
// is what channel i of the chunk is given.
template <class GivenOf>
__device__ __forceinline__ void write_rows(const Parameters& p, const Shared& s, const Unit& u, int groups,
                                           double share, double fault, const GivenOf& given) {
  const Arguments& a = p.arguments;
  const int of_group = static_cast<int>(a.o_per_norm_group), thread = static_cast<int>(threadIdx.x);
  int lanes_log2 = 0;
  while (lanes_log2 < 5 && 1 << lanes_log2 < of_group) ++lanes_log2;
  const int lanes = 1 << lanes_log2, lane = thread % lanes;
  auto* const rows = reinterpret_cast<recompute::Row*>(p.workspace + p.places.rows);
#pragma unroll 1
  for (int g0 = 0; g0 < groups; g0 += threads() / lanes) {
    const int g = g0 + thread / lanes, first = (g < groups ? g : 0) * of_group;
    const Channel* const channels = s.channels + first;
    const auto mean_of = [&](int i) { return channels[i].constant + given(first + i).bias + channels[i].mean; };
    double sum = 0, m2 = 0;
    for (int i = lane; i < of_group; i += lanes) sum += mean_of(i);
    const double mean = sum_lanes(sum, lanes_log2) * share;
    for (int i = lane; i < of_group; i += lanes) {
      const double distance = of_group == 1 ? 0 : mean_of(i) - mean;
      m2 += channels[i].m2 + u.positions * distance * distance;
    }
    m2 = sum_lanes(m2, lanes_log2);
    if (g >= groups) continue;
    const double rstd = inverse_sqrt(m2 * (u.inverse * share) + a.eps) + fault;
    for (int i = lane; i < of_group; i += lanes) {
      const Given own = given(first + i);
      // Powers of two, whose inverses are exact.
      const double by = inverse_of(channels[i].scale) * inverse_of(own.scale);
      const double shift = of_group == 1 ? -channels[i].mean : channels[i].constant + own.bias - mean;
      const double slope = rstd * own.gamma, scale = slope > FLT_MAX ? FLT_MAX : slope < -FLT_MAX ? -FLT_MAX : slope;
      const int64_t unit = int64_t{u.n} * a.conv_groups + own.conv_group;
      rows[unit * p.config.stream.rows() + own.row] = {clamped(scale * by),
                                                       clamped(fma(shift, scale, static_cast<double>(own.beta)))};
    }
  }
}

__global__ void __launch_bounds__(kMostChannelThreads, 1) channels_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ double shared[];
  let_successor_begin();
  const Arguments& a = p.arguments;
  const Config& c = p.config;
  const int n = static_cast<int>(blockIdx.x) / c.chunks, chunk = static_cast<int>(blockIdx.x) - n * c.chunks;
  const int64_t first_group = int64_t{chunk} * c.chunk_groups, end_group = min(first_group + c.chunk_groups, a.groups);
  const int64_t first = first_group * a.o_per_norm_group, end = end_group * a.o_per_norm_group;
  const Shared s(shared, c, c.chunk_groups * a.o_per_norm_group);
  const bool staged = stages(c, c.chunk_groups * a.o_per_norm_group);
  const int first_conv_group = static_cast<int>(first) / static_cast<int>(a.o_per_conv_group);
  const int positions = outputs_of(a, n);
  Unit u = {n, first_conv_group, static_cast<double>(positions), 1.0 / positions,
            (positions + c.slice() - 1) / c.slice()};
  const double fault = packed_fault(a), share = 1.0 / static_cast<double>(a.o_per_norm_group);
  for (int i = static_cast<int>(threadIdx.x); staged && i < end - first; i += threads())
    s.given[i] = given_to(p, static_cast<int>(first) + i);
#pragma unroll 1
  for (; u.conv_group * a.o_per_conv_group < end; ++u.conv_group) {
    const int64_t own_first = max(first, u.conv_group * a.o_per_conv_group);
    const int64_t own_end = min(end, (u.conv_group + 1) * a.o_per_conv_group);
    if (u.conv_group > first_conv_group) __syncthreads();
    find_pilots(p, s, u);
    Weights weights = packed_weights(p, u.conv_group);
    weights.first += own_first - u.conv_group * a.o_per_conv_group;
    if (staged) {
      stage_weights(weights, s, static_cast<int>(own_end - own_first), c.columns);
      weights = {s.weights, own_end - own_first};
    }
    // By every CTA, so that this launch does not end before the first.
    if (u.conv_group == first_conv_group) wait_for_predecessor();
    if (positions == 0) return;  // y is zeros, whatever the rows
    merge_slices(p, s, u);
    const float scale = choose_inputs(p, s, u);
    measure_channels(p, s, weights, scale, static_cast<int>(own_end - own_first), s.channels + (own_first - first));
  }
  __syncthreads();
  const auto given = [&](int i) { return staged ? s.given[i] : given_to(p, static_cast<int>(first) + i); };
  write_rows(p, s, u, static_cast<int>(end_group - first_group), share, fault, given);
}

}  // namespace

void launch_channels(const Parameters& p, cudaStream_t stream) {
  launch("launching moments' channels", channels_kernel,
         {.grid = dim3(static_cast<unsigned>(p.arguments.n * p.config.chunks)),
          .block = dim3(static_cast<unsigned>(p.config.channel_threads)),
          .shared_bytes = static_cast<size_t>(channels_bytes(p.config, p.arguments.o_per_norm_group)),
          .programmatic = p.config.dependent},
         stream, p);
}

}  // namespace convnorm::cuda::moments
