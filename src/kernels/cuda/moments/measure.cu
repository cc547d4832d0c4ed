// Moments of the columns, slice by slice of a sample's positions: sums of products in double, of distances from one of
// the slice's own inputs, so that an offset of the signal costs no digits.
#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/inputs.cuh"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/squares.cuh"

namespace convnorm::cuda::moments {

namespace {

// Where a column's inputs lie in shared memory: at + position * step.
struct Column {
  int at, step;
};

constexpr int kOne = 0, kZero = 1, kConstants = 2;  // doubles at the start of shared memory

__device__ __forceinline__ Column column_at(const Parameters& p, int r, int inputs_at) {
  if (r == p.config.columns) return {kOne, 0};
  if (r > p.config.columns) return {kZero, 0};
  const int taps = static_cast<int>(p.arguments.k), c = r / taps;
  return {inputs_at + c * p.measured_width + (r - c * taps) * static_cast<int>(p.arguments.dilation),
          static_cast<int>(p.arguments.stride)};
}

// One step of a sum over lanes that leaves half of the values to each half of them.
template <int kValues>
__device__ __forceinline__ void halve(double (&v)[kSide * kSide], int lane, int mask) {
  const bool upper = lane & mask;
#pragma unroll
  for (int i = 0; i < kValues / 2; ++i) {
    const double other = __shfl_xor_sync(~0u, upper ? v[i] : v[i + kValues / 2], mask);
    v[i] = (upper ? v[i + kValues / 2] : v[i]) + other;
  }
}

// Adds the products of four columns with four others over positions first, first + step, ... to `sums`.
__device__ __forceinline__ void add_square(const double* shared, const Column (&left)[kSide],
                                           const Column (&right)[kSide], bool diagonal, int first, int step,
                                           int positions, int lane, double* sums) {
  double v[kSide * kSide] = {};
#pragma unroll 2
  for (int t = first; t < positions; t += step) {
    double a[kSide], b[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) a[i] = shared[left[i].at + t * left[i].step];
#pragma unroll
    for (int i = 0; i < kSide; ++i) b[i] = diagonal ? a[i] : shared[right[i].at + t * right[i].step];
#pragma unroll
    for (int i = 0; i < kSide * kSide; ++i) v[i] = fma(a[i / kSide], b[i % kSide], v[i]);
  }
  halve<16>(v, lane, 16);
  halve<8>(v, lane, 8);
  halve<4>(v, lane, 4);
  halve<2>(v, lane, 2);
  v[0] += __shfl_xor_sync(~0u, v[0], 1);
  // Bits 4, 3, 2 and 1 of the lane chose the halves.
  if (lane % 2 == 0) sums[lane / 2] += v[0];
}

template <class Element>
__global__ void __launch_bounds__(kThreads) measure_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ double shared[];
  __shared__ Squares places;
  __shared__ Column columns[kSide * kMostAlong];
  let_successor_begin();
  const Arguments& a = p.arguments;
  const Config& c = p.config;
  const int along = squares_along(c.columns), count = squares(c.columns), parts = measure_parts(c.columns);
  double* const sums = shared + kConstants;  // [part][square][kSide * kSide]
  const int sum_count = parts * count * kSide * kSide, inputs_at = kConstants + sum_count;
  const int slice = static_cast<int>(blockIdx.x % c.slices);
  const int64_t unit = blockIdx.x / c.slices, n = unit / a.conv_groups, conv_group = unit % a.conv_groups;
  const int64_t length = sample_length(a, n);
  const int64_t begin = int64_t{slice} * c.slice(), end = min(begin + c.slice(), valid_outputs(a, length));
  if (begin >= end) return;
  const Element* x = first_input<Element>(a, n, conv_group);
  const InputStrides strides = input_strides(a);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int64_t pilot_at = max(int64_t{0}, min(begin * a.stride - a.pad_left, length - 1));
  const auto pilot_of = [&](int channel) {
    return length > 0 ? to_float(__ldg(x + channel * strides.channel + pilot_at * strides.position)) : 0.0f;
  };

  places.fill(c.columns);
  for (int r = thread; r < kSide * along; r += kThreads) columns[r] = column_at(p, r, inputs_at);
  if (thread == 0) shared[kOne] = 1, shared[kZero] = 0;
  for (int i = thread; i < sum_count; i += kThreads) sums[i] = 0;
  for (int64_t first = begin; first < end; first += c.tile) {
    const int positions = static_cast<int>(min(static_cast<int64_t>(c.tile), end - first));
    const int width = static_cast<int>(recompute::inputs_under(a, positions));
    const int64_t from = first * a.stride - a.pad_left;
    read_inputs(a, x, from, width, length, [&](int channel, int i, Element value) {
      shared[inputs_at + channel * p.measured_width + i] =
          static_cast<double>(to_float(value)) - static_cast<double>(pilot_of(channel));
    });
    __syncthreads();
    for (int item = warp; item < count * parts; item += kWarps) {
      const int part = item / count, square = item % count;
      Column left[kSide], right[kSide];
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
        left[i] = columns[kSide * places.row(square) + i];
        right[i] = columns[kSide * places.column(square) + i];
      }
      add_square(shared, left, right, places.row(square) == places.column(square), 32 * part + lane, 32 * parts,
                 positions, lane, sums + item * kSide * kSide);
    }
    __syncthreads();
  }

  const auto sum_of = [&](int at) {
    double sum = 0;
    for (int part = 0; part < parts; ++part) sum += sums[part * count * kSide * kSide + at];
    return sum;
  };
  const double positions = static_cast<double>(end - begin);
  double* record = reinterpret_cast<double*>(p.workspace + p.places.slices) + int64_t{blockIdx.x} * c.record();
  for (int r = thread; r < c.columns; r += kThreads) {
    record[r] =
        static_cast<double>(pilot_of(r / static_cast<int>(a.k))) + sum_of(product_at(r, c.columns, along)) / positions;
  }
  for (int square = warp; square < count; square += kWarps) {
    const int i = places.row(square) * kSide + lane / kSide % kSide, j = places.column(square) * kSide + lane % kSide;
    if (lane >= kSide * kSide || j >= c.columns || i >= c.columns) continue;
    const double left = sum_of(product_at(i, c.columns, along)), right = sum_of(product_at(j, c.columns, along));
    record[c.columns + square * kSide * kSide + lane] =
        sum_of(square * kSide * kSide + lane) - left * (right / positions);
  }
}

}  // namespace

void launch_measure(const Parameters& p, cudaStream_t stream) {
  const Arguments& a = p.arguments;
  const int64_t ctas = a.n * a.conv_groups * p.config.slices;
  with_device_element(a.dtype, [&](auto type) {
    launch("launching moments' measuring of columns", measure_kernel<decltype(type)>,
           {.grid = dim3(static_cast<unsigned>(ctas)),
            .block = dim3(kThreads),
            .shared_bytes = static_cast<size_t>(measure_bytes(p.config, a.c_per_conv_group, p.measured_width))},
           stream, p);
  });
}

}  // namespace convnorm::cuda::moments
