// What both kernels do for a job: deciding it, the parameters of its channel, the norm, and storing its tiles.
#pragma once

#include <cfloat>

#include "kernels/cuda/collective/row_ops.cuh"
#include "kernels/cuda/collective/slots.cuh"
#include "kernels/cuda/depthwise/launch.cuh"
#include "kernels/cuda/depthwise/walk.cuh"

namespace convnorm::cuda::depthwise {

template <class Element>
__device__ __forceinline__ Element* output_of(const Arguments& a, const Job& j) {
  return static_cast<Element*>(a.y) + (j.n * a.o + j.channel) * a.l_out + j.first;
}

// Job i of those of the domains from `first_domain` on.
template <class Element>
__device__ __forceinline__ Job job_of(const Parameters& p, uint32_t first_domain, uint32_t i) {
  const Config& c = p.config;
  const Arguments& a = p.arguments;
  const uint32_t domain = c.by_domain_jobs.divide(i), of_domain = i - domain * c.by_domain_jobs.value;
  const uint32_t row = c.by_pieces.divide(of_domain), piece = of_domain - row * c.by_pieces.value;
  const uint32_t number = first_domain + domain, sample = c.by_sample_domains.divide(number);
  const uint32_t group = number - sample * c.by_sample_domains.value;
  Job j;
  j.n = static_cast<int>(sample);
  j.channel = static_cast<int>(group * (a.groups > 0 ? static_cast<uint32_t>(a.o_per_norm_group) : 1) + row);
  j.first = static_cast<int>(piece) * c.piece;
  j.positions = min(c.piece, static_cast<int>(a.l_out) - j.first);
  const int64_t length = sample_length(a, j.n);
  j.length = static_cast<int>(length);
  const int64_t valid = a.lengths == nullptr ? a.l_out : valid_outputs(a, length);
  j.valid = static_cast<int>(max(int64_t{0}, min(static_cast<int64_t>(j.positions), valid - j.first)));
  const auto address = reinterpret_cast<uintptr_t>(output_of<Element>(a, j));
  j.shift = static_cast<int>(address % kSectorBytes / sizeof(Element));
  return j;
}

// The channel of job i of a domain.
__device__ __forceinline__ int channel_of(const Parameters& p, uint32_t domain, uint32_t i) {
  const Config& c = p.config;
  const uint32_t group = domain - c.by_sample_domains.divide(domain) * c.by_sample_domains.value;
  return static_cast<int>(group * static_cast<uint32_t>(p.arguments.o_per_norm_group) + c.by_pieces.divide(i));
}

// Positions of a domain's jobs before job i, all of them with outputs; a row has `valid`.
__device__ __forceinline__ double positions_before(const Config& c, uint32_t i, int64_t valid) {
  const uint32_t row = c.by_pieces.divide(i), piece = i - row * c.by_pieces.value;
  return static_cast<double>(row * valid + min(int64_t{piece} * c.piece, valid));
}

// Number `which` of ChannelParameters, as the caller gives it.
template <class Element>
__device__ __forceinline__ float given_parameter(const Arguments& a, int which, int channel) {
  const bool per_channel = which != 1 || a.pre_slope_per_channel;
  const void* const tensor = which == 0 ? a.bias : which == 1 ? a.pre_slope : which == 2 ? a.gamma : a.beta;
  return tensor != nullptr ? load_parameter<Element>(a, tensor, per_channel ? channel : 0) : (which == 2 ? 1.0f : 0.0f);
}
template <class Element>
__device__ __forceinline__ float channel_parameter(const Arguments& a, int which, int channel) {
  const float value = given_parameter<Element>(a, which, channel);
  return which == 0 ? value + packed_fault(a) : value;
}

// rstd * gamma. A tiny eps and no spread make more of it than fp32 holds; infinity times a deviation of 0 would be NaN.
__device__ __forceinline__ float norm_scale(double rstd, float gamma) {
  const double product = rstd * gamma;
  return static_cast<float>(product > FLT_MAX ? FLT_MAX : product < -FLT_MAX ? -FLT_MAX : product);
}

// Whether all outputs of a tile lie in [0, end).
template <class T>
__device__ __forceinline__ bool is_whole(const Row<typename T::Element>& r, int base, int end) {
  return base >= r.shift && base + T::extent(r) - r.shift <= end;
}

template <class Element>
__device__ __forceinline__ void store_four(const float* v, Element* y) {
  alignas(16) Element out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = from_float<Element>(v[i]);
  if constexpr (sizeof(out) == 16) {
    *reinterpret_cast<uint4*>(y) = *reinterpret_cast<const uint4*>(out);
  } else {
    *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(out);
  }
}

// The outputs of a tile that lie in [0, positions).
template <class T>
__device__ __forceinline__ void store_tile(const Row<typename T::Element>& r, int base, int positions,
                                           const float (&v)[T::kOutputs], typename T::Element* y) {
  using Element = typename T::Element;
  if constexpr (T::kInVectors) {
#pragma unroll
    for (int j = 0; j < T::kVectors; ++j) {
      const int at = T::position(r, base, 4 * j);
      if (at >= 0 && at + 4 <= positions) {
        store_four(v + 4 * j, y + at);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (at + i >= 0 && at + i < positions) y[at + i] = from_float<Element>(v[4 * j + i]);
        }
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < T::kOutputs; ++i) {
      const int at = T::position(r, base, i);
      if (at >= 0 && at < positions) y[at] = from_float<Element>(v[i]);
    }
  }
}

}  // namespace convnorm::cuda::depthwise
