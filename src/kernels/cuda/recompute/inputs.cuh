// A window's inputs on their way to shared memory: as words of two 16-bit numbers, the columns of a pair. Of fp32,
// centred and scaled by a power of two such that none leaves the range of fp16, there are words of the upper and of the
// lower halves.
#pragma once

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/recompute/launch.hpp"

namespace convnorm::cuda::recompute {

// log2 of Phi(-u), for the GELU of 16-bit layers: of degree 5, where DeviceMath::gelu_erf has 7. Absolute error of the
// GELU 4.4e-7, relative error 3e-3 down to -4 and 15% at -6.
__device__ __forceinline__ float phi_exponent(float u) {
  float p = fmaf(u, -4.732939997e-04f, 7.084460929e-03f);
  p = fmaf(p, u, -5.182716995e-02f);
  p = fmaf(p, u, -4.599926472e-01f);
  p = fmaf(p, u, -1.150787711e+00f);
  return fmaf(p, u, -1.000037670e+00f);
}

// Where a conv group's inputs of one sample lie. Positions are counted in 32 bits, which takes a third.
template <class Element>
struct Source {
  const Element* first;
  int64_t channel;   // stride
  int position;      // stride
  int from, length;  // of the first input of the window; valid inputs of the sample

  __device__ __forceinline__ Source(const Arguments& a, int64_t n, int64_t conv_group, int from_, int length_)
      : from(from_), length(length_) {
    const bool ncl = a.layout == CONVNORM_NCL;
    const int64_t channel_number = conv_group * a.c_per_conv_group;
    first =
        static_cast<const Element*>(a.x) + (ncl ? (n * a.c + channel_number) * a.l : n * a.l * a.c + channel_number);
    channel = ncl ? a.l : 1, position = static_cast<int>(ncl ? 1 : a.c);
  }

  // Position of input i of the window, padding resolved; negative for a zero.
  __device__ __forceinline__ int at(const Arguments& a, int i) const {
    const int own = from + i;
    if (static_cast<unsigned>(own) < static_cast<unsigned>(length)) return own;
    return static_cast<int>(input_position(a, own, length));
  }
  __device__ __forceinline__ const Element* address(const Element* row, int at) const {
    return row + static_cast<int64_t>(at) * position;
  }
};

// body(channel, i) for i in [0, width) of all channels, by all threads of the CTA, always the same ones.
template <class Body>
__device__ __forceinline__ void for_each_input(const Arguments& a, int width, const Body& body) {
  for (int c = 0; c < static_cast<int>(a.c_per_conv_group); ++c) {
    for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) body(c, i);
  }
}

// The largest of all threads' values, the same in each; `per_warp` holds kWarps.
__device__ __forceinline__ float largest_of_cta(float value, float* per_warp) {
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, mask));
  if (threadIdx.x % 32 == 0) per_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) largest = fmaxf(largest, per_warp[i]);
  return largest;
}

// 2^(exponent - ceil(log2(largest))), or 1 where there is nothing to scale.
__device__ __forceinline__ float power_of_two_for(float largest, int exponent) {
  if (!(largest > 0 && largest < 3e38f)) return 1.0f;
  int own = 0;
  frexpf(largest, &own);
  return ldexpf(1.0f, max(min(exponent - own, 120), -120));
}

// Upper and lower halves of two numbers.
__device__ __forceinline__ void split(float first, float second, uint32_t& high, uint32_t& low) {
  const __half2 h = __floats2half2_rn(first, second);
  const float2 back = __half22float2(h);
  const __half2 l = __floats2half2_rn(first - back.x, second - back.y);
  high = reinterpret_cast<const uint32_t&>(h), low = reinterpret_cast<const uint32_t&>(l);
}

// words, words + part: upper and lower halves. centres[c]: what was taken off channel c. Returns the scale. All threads
// of the CTA; the words are complete after the next barrier. `given`, if not null: the scale and the centres to take.
__device__ __forceinline__ float load_window(const Arguments& a, const Config& config, const Source<float>& x,
                                             uint32_t* words, uint32_t* lower, float* centres, Range& range,
                                             const float* given) {
  const int width = config.width, taps_apart = a.k > 1 ? static_cast<int>(a.dilation) : 0;
  const bool by_channels = config.pairs_of_channels;
  const auto raw = [&](int c, int i) {
    return by_channels ? reinterpret_cast<float*>((c % 2 == 0 ? words : lower) + c / 2 * width + i)
                       : reinterpret_cast<float*>(words + c * width + i);
  };
  for_each_input(a, width, [&](int c, int i) {
    const int at = x.at(a, i);
    ptx::copy_async_or_zeros<4>(ptx::shared_address(raw(c, i)), x.address(x.first + c * x.channel, max(at, 0)),
                                at >= 0);
  });
  ptx::commit_copies();
  // Any input serves as a centre; an offset of the signal then costs no digits.
  for (int c = static_cast<int>(threadIdx.x); c < static_cast<int>(a.c_per_conv_group); c += kThreads) {
    const int at = min(max(x.from, 0), x.length - 1);
    const float found = at >= 0 && given == nullptr ? __ldg(x.address(x.first + c * x.channel, at)) : 0.0f;
    centres[c] = given != nullptr ? given[1 + c] : fabsf(found) < 1e37f ? found : 0.0f;
  }
  ptx::wait_copies<0>();
  __syncthreads();
  float scale = 0;
  if (given != nullptr) {
    scale = given[0];
  } else {
    float largest = 0;
    for_each_input(a, width, [&](int c, int i) { largest = fmaxf(largest, fabsf(*raw(c, i) - centres[c])); });
    constexpr int kExponent = 13;  // products of 64 columns and their sums are far from fp32's ends
    scale = power_of_two_for(largest_of_cta(largest, range.largest), kExponent);
  }
  if (by_channels) {
    for (int c = 0; c < static_cast<int>(a.c_per_conv_group); c += 2) {
      for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
        split((*raw(c, i) - centres[c]) * scale, (*raw(c + 1, i) - centres[c + 1]) * scale, words[c / 2 * width + i],
              lower[c / 2 * width + i]);
      }
    }
  } else {
    // In place, front to back: what a word's second number comes from lies behind it.
    constexpr int kAtOnce = 8;
    for (int c = 0; c < static_cast<int>(a.c_per_conv_group); ++c) {
      uint32_t *const high = words + c * width, *const low = lower + c * width;
      const auto* own = reinterpret_cast<const float*>(high);
      const float centre = centres[c];
      for (int first = static_cast<int>(threadIdx.x); first - static_cast<int>(threadIdx.x) < width;
           first += kAtOnce * kThreads) {
        float value[kAtOnce][2];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int i = first + j * kThreads;
          value[j][0] = i < width ? own[i] : 0.0f;
          value[j][1] = i + taps_apart < width ? own[i + taps_apart] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int i = first + j * kThreads;
          if (i < width) split((value[j][0] - centre) * scale, (value[j][1] - centre) * scale, high[i], low[i]);
        }
      }
    }
  }
  return scale;
}

// Multiplying by a power of two is exact in bf16, but for what vanishes beside the largest.
__device__ __forceinline__ void scale_words(const Arguments& a, const Config& config, uint32_t* words, float scale) {
  const int units = static_cast<int>(config.pairs_of_channels ? a.c_per_conv_group / 2 : a.c_per_conv_group);
  for (int i = static_cast<int>(threadIdx.x); i < units * config.width; i += kThreads) {
    auto& pair = reinterpret_cast<__nv_bfloat162&>(words[i]);
    pair = __floats2bfloat162_rn(__low2float(pair) * scale, __high2float(pair) * scale);
  }
}

// As above, of 16-bit numbers as they stand; bf16 whose squares fp32 does not hold are scaled.
template <class Element>
__device__ __forceinline__ float load_window(const Arguments& a, const Config& config, const Source<Element>& x,
                                             uint32_t* words, uint32_t*, float*, Range& range, const float* given) {
  constexpr bool kMayBeScaled = std::is_same_v<Element, __nv_bfloat16>;
  const int width = config.width, taps_apart = a.k > 1 ? static_cast<int>(a.dilation) : 0;
  auto* halves = reinterpret_cast<Element*>(words);
  float largest = 0;
  constexpr int kAtOnce = 8;
  for (int c = 0; c < static_cast<int>(a.c_per_conv_group); ++c) {
    const Element* row = x.first + c * x.channel;
    for (int first = static_cast<int>(threadIdx.x); first < width; first += kAtOnce * kThreads) {
      Element value[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * kThreads;
        value[j] = from_float<Element>(0.0f);
        if (i >= width) continue;
        const int at = x.at(a, i);
        if (at >= 0) value[j] = __ldg(x.address(row, at));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * kThreads;
        if (i >= width) continue;
        if (kMayBeScaled) largest = fmaxf(largest, fabsf(to_float(value[j])));
        if (config.pairs_of_channels) {
          halves[2 * (c / 2 * width + i) + c % 2] = value[j];
        } else {
          halves[2 * (c * width + i)] = value[j];
          if (i >= taps_apart) halves[2 * (c * width + i - taps_apart) + 1] = value[j];
        }
      }
    }
  }
  if (!kMayBeScaled || given != nullptr) return 1.0f;
  largest = largest_of_cta(largest, range.largest);
  if (largest == 0 || (largest > 1e-12f && largest < 1e12f)) return 1.0f;
  const float scale = power_of_two_for(largest, 1);
  if (scale != 1.0f) scale_words(a, config, words, scale);
  return scale;
}

}  // namespace convnorm::cuda::recompute
