// Moments of the columns, slice by slice of a sample's positions: sums of products in double, of distances from a pilot
// that all slices of a sample share, so that an offset of the signal costs no digits and slices are merged by adding.
#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/sample.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace convnorm::cuda::moments {

namespace {

// Where a column's inputs lie in shared memory: at + position * step.
struct Column {
  int at, step;
};

constexpr int kOne = 0, kZero = 1, kConstants = 2;  // doubles at the start of shared memory

template <class Element>
class Measure {
 public:
  __device__ __forceinline__ Measure(const Parameters& p, double* shared, Column* columns)
      : p_(p),
        a_(p.arguments),
        c_(p.config),
        shared_(shared),
        columns_(columns),
        sums_(shared + kConstants),
        tiles_(tiles_of_products(p.config.columns)),
        parts_(measure_parts(p.config.columns)),
        inputs_(kConstants + tiles_ * parts_ * kSide * kSide),
        thread_(static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ void run() {
    const int unit = static_cast<int>(blockIdx.x) / c_.slices, slice = static_cast<int>(blockIdx.x) - unit * c_.slices;
    const int conv_groups = static_cast<int>(a_.conv_groups), n = unit / conv_groups;
    const int conv_group = unit - n * conv_groups, length = static_cast<int>(sample_length(a_, n));
    const int begin = slice * c_.slice(), end = min(begin + c_.slice(), outputs_of(a_, n));
    if (begin >= end) return;
    for (int r = thread_; r < kSide * tiles_along(c_.columns); r += kThreads) columns_[r] = column_at(r);
    if (thread_ == 0) shared_[kOne] = 1, shared_[kZero] = 0;
    for (int i = thread_; i < tiles_ * parts_ * kSide * kSide; i += kThreads) sums_[i] = 0;
    for (int first = begin; first < end; first += c_.tile) {
      const int positions = min(c_.tile, end - first);
      const int from = first * static_cast<int>(a_.stride) - static_cast<int>(a_.pad_left);
      load_inputs({a_, n, conv_group, from, length}, static_cast<int>(recompute::inputs_under(a_, positions)));
      __syncthreads();
      add_products(positions);
      __syncthreads();
    }
    write(reinterpret_cast<double*>(p_.workspace + p_.places.slices) + int64_t{blockIdx.x} * c_.record());
  }

 private:
  // As distances from the pilot; several a thread are on their way before the first is used.
  __device__ __forceinline__ void load_inputs(const recompute::Source<Element>& x, int width) const {
    const bool inside = x.from >= 0 && x.from + width <= x.length;
#pragma unroll 1
    for (int c = 0; c < static_cast<int>(a_.c_per_conv_group); ++c) {
      const Element* const row = x.first + c * x.channel;
      double pilot = 0;
      double* const to = shared_ + inputs_ + c * p_.measured_width;
      constexpr int kAtOnce = 8;
#pragma unroll 1
      for (int first = thread_; first < width; first += kAtOnce * kThreads) {
        Element value[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) value[j] = from_float<Element>(0.0f);
        if (inside) {
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            const int i = first + j * kThreads;
            if (i < width) value[j] = __ldg(x.address(row, x.from + i));
          }
        } else {
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            const int i = first + j * kThreads, at = i < width ? x.at(a_, i) : -1;
            if (at >= 0) value[j] = __ldg(x.address(row, at));
          }
        }
        // Loaded behind the first inputs, not before them.
        if (first == thread_) pilot = pilot_of(x, row);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int i = first + j * kThreads;
          if (i < width) to[i] = static_cast<double>(to_float(value[j])) - pilot;
        }
      }
    }
  }

  __device__ __forceinline__ Column column_at(int r) const {
    if (r >= c_.columns) return {r == c_.columns ? kOne : kZero, 0};
    const int taps = static_cast<int>(a_.k), c = r / taps;
    return {inputs_ + c * p_.measured_width + (r - c * taps) * static_cast<int>(a_.dilation),
            static_cast<int>(a_.stride)};
  }

  // Adds what a tile's positions give. A lane holds column g of either side at position q of four.
  __device__ __forceinline__ void add_products(int positions) const {
    const int g = thread_ % 32 / 4, q = thread_ % 4, whole = positions / kDeep;
#pragma unroll 1
    for (int item = thread_ / 32; item < tiles_ * parts_; item += kWarps) {
      const int part = item % parts_;
      const ProductTile tile(c_.columns, item / parts_);
      const Column i = columns_[tile.left(g)], j = columns_[tile.right(g)];
      const int first = kDeep * part + q, step = kDeep * parts_;
      const double *left = shared_ + i.at + first * i.step, *right = shared_ + j.at + first * j.step;
      const int left_step = step * i.step, right_step = step * j.step;
      constexpr int kChains = 4;  // whose operands are all on their way before the first is used
      double d[kChains][2] = {};
      int at = part;
#pragma unroll 1
      for (; at + (kChains - 1) * parts_ < whole; at += kChains * parts_) {
        double a[kChains], b[kChains];
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) {
          a[chain] = *left, b[chain] = *right;
          left += left_step, right += right_step;
        }
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) ptx::mma(d[chain], a[chain], b[chain]);
      }
      // The rest, and the one that the last positions do not fill.
#pragma unroll 1
      for (; at * kDeep < positions; at += parts_, left += left_step, right += right_step) {
        const bool inside = at * kDeep + q < positions;
        ptx::mma(d[0], inside ? *left : 0.0, inside ? *right : 0.0);
      }
      double2& sum = *reinterpret_cast<double2*>(sums_ + item * kSide * kSide + g * kSide + 2 * q);
      sum.x += (d[0][0] + d[1][0]) + (d[2][0] + d[3][0]), sum.y += (d[0][1] + d[1][1]) + (d[2][1] + d[3][1]);
    }
  }

  __device__ __forceinline__ void write(double* record) const {
    for (int at = thread_; at < tiles_ * kSide * kSide; at += kThreads) {
      const int number = at / (kSide * kSide), in_tile = at % (kSide * kSide);
      const int first = number * parts_ * kSide * kSide + in_tile;
      const ProductTile tile(c_.columns, number);
      const int i = tile.left(in_tile / kSide), j = tile.right(in_tile % kSide);
      if (!tile.gives(i, j)) continue;
      double sum = 0;
#pragma unroll 8
      for (int part = 0; part < parts_; ++part) sum += sums_[first + part * kSide * kSide];
      record[product_at(i, j, c_.columns)] = sum;
    }
  }

  const Parameters& p_;
  const Arguments& a_;
  const Config& c_;
  double* const shared_;
  Column* const columns_;             // of all tiles
  double* const sums_;                // [tile][part][kSide * kSide]
  const int tiles_, parts_, inputs_;  // inputs: where they begin
  const int thread_;
};

template <class Element>
__global__ void __launch_bounds__(kThreads) measure_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(16) double shared[];
  __shared__ Column columns[kSide * tiles_along(kMostColumns)];
  let_successor_begin();
  Measure<Element>(p, shared, columns).run();
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
