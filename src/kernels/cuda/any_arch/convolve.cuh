// The convolution of any_arch: an implicit matrix product on FMA units, kDepth products at a time through shared
// memory. Products are counted by r = c * K + k. The next kDepth of them are in flight while the present ones are
// multiplied.
#pragma once

#include "kernels/cuda/any_arch/divide.cuh"
#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda::any_arch {

template <class T>
struct alignas(16) Shared {
  union {
    struct {
      float w[T::kDepth][T::kChannels];
      float x[T::kDepth][T::kPositions];
    };
    // After the last product. The odd row length keeps a column apart in the banks.
    float z[T::kChannels][T::kPositions + 1];
  };
};

// Where a CTA's tile lies.
struct Origin {
  int64_t sample;  // of the wave
  int64_t conv_group;
  int64_t channel;  // within the conv group
  int64_t position;
};

template <class T>
struct Loader {
  static constexpr int kRowsAtOnceX = kThreads / T::kPositions, kRowsAtOnceW = kThreads / T::kChannels;
  static constexpr int kX = (T::kDepth + kRowsAtOnceX - 1) / kRowsAtOnceX;
  static constexpr int kW = (T::kDepth + kRowsAtOnceW - 1) / kRowsAtOnceW;

  // Rows of the tile that this thread fetches, as (c, k): stepping them on costs less than dividing.
  int64_t c[kX], k[kX];
  float x[kX], w[kW];

  __device__ void start(const Arguments& a) {
#pragma unroll
    for (int i = 0; i < kX; ++i) {
      const Division at = divide(static_cast<int64_t>(threadIdx.x) / T::kPositions + i * kRowsAtOnceX, a.k);
      c[i] = at.quotient, k[i] = at.remainder;
    }
  }

  // Products [r0, r0 + kDepth) into registers. `x_sample` and `w_group` lead to the sample's first channel of the conv
  // group and to the group's packed weight.
  template <class Element>
  __device__ void fetch(const Arguments& a, const Element* x_sample, const float* w_group, const Origin& o, int64_t r0,
                        int64_t depth, int64_t length, int64_t end, Division step) {
    const int64_t l = o.position + static_cast<int>(threadIdx.x) % T::kPositions;
    const bool ncl = a.layout == CONVNORM_NCL;
#pragma unroll
    for (int i = 0; i < kX; ++i) {
      const int row = static_cast<int>(threadIdx.x) / T::kPositions + i * kRowsAtOnceX;
      x[i] = 0;
      if (r0 + row < depth && row < T::kDepth && l < end) {
        const int64_t at = input_position(a, l * a.stride + k[i] * a.dilation - a.pad_left, length);
        if (at >= 0) x[i] = to_float(__ldg(x_sample + (ncl ? c[i] * a.l + at : at * a.c + c[i])));
      }
      c[i] += step.quotient, k[i] += step.remainder;
      if (k[i] >= a.k) k[i] -= a.k, ++c[i];
    }
    const int64_t channel = o.channel + static_cast<int>(threadIdx.x) % T::kChannels;
#pragma unroll
    for (int i = 0; i < kW; ++i) {
      const int row = static_cast<int>(threadIdx.x) / T::kChannels + i * kRowsAtOnceW;
      const bool inside = r0 + row < depth && row < T::kDepth && channel < a.o_per_conv_group;
      w[i] = inside ? __ldg(w_group + (r0 + row) * a.o_per_conv_group + channel) : 0.0f;
    }
  }

  __device__ void put(Shared<T>& shared) const {
#pragma unroll
    for (int i = 0; i < kX; ++i) {
      const int row = static_cast<int>(threadIdx.x) / T::kPositions + i * kRowsAtOnceX;
      if (row < T::kDepth) shared.x[row][threadIdx.x % T::kPositions] = x[i];
    }
#pragma unroll
    for (int i = 0; i < kW; ++i) {
      const int row = static_cast<int>(threadIdx.x) / T::kChannels + i * kRowsAtOnceW;
      if (row < T::kDepth) shared.w[row][threadIdx.x % T::kChannels] = w[i];
    }
  }
};

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Mean, then centred squares, of `count` values of which this lane takes those at lane + 32 * i. The deviations are
// summed too, which takes the rounding of the mean out again. Where squares leave fp32's range, each lane does all of
// it in double: that is rare, and takes no registers from the products.
template <int kSegment>
__device__ SegmentMoments measure(const float* values, int count) {
  constexpr int kOwn = (kSegment + 31) / 32;
  constexpr float kSmallestSquares = 1e-25f;
  const int lane = threadIdx.x % 32;
  float v[kOwn], sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    v[i] = lane + 32 * i < count ? values[lane + 32 * i] : 0.0f;
    sum += v[i];
  }
  const float mean = warp_sum(sum) / static_cast<float>(count);
  float rest = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float d = lane + 32 * i < count ? v[i] - mean : 0.0f;
    rest += d;
    squares += d * d;
  }
  rest = warp_sum(rest);
  squares = warp_sum(squares);
  if (isfinite(squares) && squares > kSmallestSquares) {
    const double correction = static_cast<double>(rest) / count;
    const double m2 = static_cast<double>(squares) - static_cast<double>(rest) * correction;
    return {static_cast<double>(mean) + correction, m2 < 0 ? 0 : m2};
  }
  double wide_sum = 0, wide_squares = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) wide_sum += static_cast<double>(values[i]);
  const double wide_mean = wide_sum / count;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const double d = static_cast<double>(values[i]) - wide_mean;
    wide_squares += d * d;
  }
  return {wide_mean, wide_squares};
}

template <class T, class Element>
__device__ void convolve_tile(const Arguments& a, const Wave& wave, const Origin& origin, Shared<T>& shared) {
  const int64_t n = wave.first + origin.sample;
  const int64_t length = sample_length(a, n);
  const int64_t end = wave.position + wave.positions;
  const int64_t depth = a.c_per_conv_group * a.k;
  const int64_t first_input = origin.conv_group * a.c_per_conv_group;
  const auto* x_sample =
      static_cast<const Element*>(a.x) + n * a.c * a.l + (a.layout == CONVNORM_NCL ? first_input * a.l : first_input);
  const float* w_group = static_cast<const float*>(a.packed_weight()) + origin.conv_group * depth * a.o_per_conv_group;

  // This thread's outputs.
  constexpr int kAcross = T::kPositions / T::kOwnPositions;
  const int row0 = static_cast<int>(threadIdx.x) / kAcross * T::kOwnChannels;
  const int column0 = static_cast<int>(threadIdx.x) % kAcross * T::kOwnPositions;
  float sums[T::kOwnChannels * T::kOwnPositions];
  const float start = packed_fault(a);
#pragma unroll
  for (float& sum : sums) sum = start;

  Loader<T> loader;
  loader.start(a);
  const Division step = divide(T::kDepth, a.k);
  loader.fetch(a, x_sample, w_group, origin, 0, depth, length, end, step);
  for (int64_t r = 0; r < depth; r += T::kDepth) {
    __syncthreads();
    loader.put(shared);
    __syncthreads();
    if (r + T::kDepth < depth) loader.fetch(a, x_sample, w_group, origin, r + T::kDepth, depth, length, end, step);
#pragma unroll
    for (int d = 0; d < T::kDepth; ++d) {
      float w[T::kOwnChannels], x[T::kOwnPositions];
#pragma unroll
      for (int i = 0; i < T::kOwnChannels; ++i) w[i] = shared.w[d][row0 + i];
#pragma unroll
      for (int j = 0; j < T::kOwnPositions; ++j) x[j] = shared.x[d][column0 + j];
#pragma unroll
      for (int i = 0; i < T::kOwnChannels; ++i) {
#pragma unroll
        for (int j = 0; j < T::kOwnPositions; ++j) {
          float& sum = sums[i * T::kOwnPositions + j];
          sum = fmaf(w[i], x[j], sum);
        }
      }
    }
  }

  const auto place = [&](int i) {
    const int64_t row = origin.channel + row0 + i / T::kOwnPositions;
    return Position{n, origin.conv_group * a.o_per_conv_group + row, origin.position + column0 + i % T::kOwnPositions,
                    row < a.o_per_conv_group};
  };
  if (a.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < T::kOwnChannels * T::kOwnPositions; ++i) {
      const Position at = place(i);
      if (at.inside) sums[i] += load(a.bias, a.param_dtype, at.channel);
    }
  }
  apply_pre(a, sums, place);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < T::kOwnChannels * T::kOwnPositions; ++i) {
    shared.z[row0 + i / T::kOwnPositions][column0 + i % T::kOwnPositions] = sums[i];
  }
  __syncthreads();

  const int64_t valid = valid_outputs(a, length);
  const int64_t channel0 = origin.conv_group * a.o_per_conv_group + origin.channel;
  const int rows = static_cast<int>(min(static_cast<int64_t>(T::kChannels), a.o_per_conv_group - origin.channel));
  const int columns =
      static_cast<int>(max(int64_t{0}, min(static_cast<int64_t>(T::kPositions), min(valid, end) - origin.position)));

  // Neighbouring threads store neighbouring values, in either layout.
  if (wave.z != nullptr) {
    const bool ncl = a.layout == CONVNORM_NCL;
    for (int i = threadIdx.x; i < T::kChannels * T::kPositions; i += kThreads) {
      const int row = ncl ? i / T::kPositions : i % T::kChannels;
      const int column = ncl ? i % T::kPositions : i / T::kChannels;
      if (row >= rows || column >= columns) continue;
      const int64_t channel = channel0 + row, l = origin.position - wave.position + column;
      wave.z[ncl ? (origin.sample * a.o + channel) * wave.positions + l
                 : (origin.sample * wave.positions + l) * a.o + channel] = shared.z[row][column];
    }
  }
  if (wave.partial == nullptr) return;
  constexpr int kSegments = T::kPositions / T::kSegment, kWarps = kThreads / 32;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < T::kChannels * kSegments; i += kWarps) {
    const int row = i / kSegments, segment = i % kSegments;
    const int count = min(T::kSegment, columns - segment * T::kSegment);
    if (row >= rows || count <= 0) continue;
    const SegmentMoments moments = measure<T::kSegment>(&shared.z[row][segment * T::kSegment], count);
    if (threadIdx.x % 32 == 0) {
      wave.partial[(origin.sample * a.o + channel0 + row) * wave.segments + origin.position / T::kSegment + segment] =
          moments;
    }
  }
}

template <class T, class Element>
__global__ void __launch_bounds__(kThreads, 2)
    convolve_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Wave wave, int64_t tiles) {
  __shared__ Shared<T> shared;
  const int64_t across = tiles_along(wave.positions, T::kPositions),
                down = tiles_along(a.o_per_conv_group, T::kChannels);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Division column = divide(tile, across), row = divide(column.quotient, down),
                   group = divide(row.quotient, a.conv_groups);
    convolve_tile<T, Element>(a, wave,
                              {.sample = group.quotient,
                               .conv_group = group.remainder,
                               .channel = row.remainder * T::kChannels,
                               .position = wave.position + column.remainder * T::kPositions},
                              shared);
    __syncthreads();
  }
}

template <class Element>
void convolve_elements(const Arguments& a, const Wave& wave, TileKind kind, cudaStream_t stream) {
  with_tile(kind, [&](auto shape) {
    using T = decltype(shape);
    const int64_t tiles = wave.count * a.conv_groups * tiles_along(a.o_per_conv_group, T::kChannels) *
                          tiles_along(wave.positions, T::kPositions);
    launch("launching any_arch's convolution", convolve_kernel<T, Element>,
           {.grid = dim3(grid_for(tiles)), .block = dim3(kThreads)}, stream, a, wave, tiles);
  });
}

}  // namespace convnorm::cuda::any_arch
