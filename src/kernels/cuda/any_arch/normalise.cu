// The second and third kernel of any_arch: moments merged to norms, then z to y.
#include <cfloat>

#include "kernels/cuda/any_arch/divide.cuh"
#include "kernels/cuda/any_arch/norm.cuh"
#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda::any_arch {

namespace {

__device__ void merge_into(Moments& total, const Moments& part) {
  if (part.count == 0) return;
  if (total.count == 0) {
    total = part;
    return;
  }
  const double count = total.count + part.count, delta = part.mean - total.mean;
  total.m2 += part.m2 + delta * delta * (total.count * part.count / count);
  total.mean += delta * (part.count / count);
  total.count = count;
}

// Merges what the threads hold, neighbours first.
__device__ void merge_threads(Moments& own) {
  __shared__ Moments shared[kThreads];
  shared[threadIdx.x] = own;
  for (int step = 1; step < kThreads; step *= 2) {
    __syncthreads();
    if (threadIdx.x % (2 * step) == 0) merge_into(shared[threadIdx.x], shared[threadIdx.x + step]);
  }
  __syncthreads();
  own = shared[0];
  __syncthreads();
}

__device__ Norm norm_from(const Moments& m, double eps) {
  return any_arch::norm_from(m.mean, m.count > 0 ? m.m2 / m.count : 0, eps);
}

// One CTA for each chunk of each group.
__global__ void __launch_bounds__(kThreads)
    merge_segments_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Wave wave, int64_t items) {
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Division chunk = divide(item, wave.chunks), group = divide(chunk.quotient, a.groups);
    const int64_t valid = valid_outputs(a, sample_length(a, wave.first + group.quotient));
    const int64_t channel0 = group.quotient * a.o + group.remainder * a.o_per_norm_group;
    const int64_t begin = chunk.remainder * kSegmentsPerChunk;
    const int64_t end = min(begin + static_cast<int64_t>(kSegmentsPerChunk), a.o_per_norm_group * wave.segments);
    Moments own = {0, 0, 0};
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      const Division segment = divide(i, wave.segments);
      const int64_t count =
          min(static_cast<int64_t>(wave.segment_positions), valid - segment.remainder * wave.segment_positions);
      if (count <= 0) continue;
      const SegmentMoments& m = wave.partial[(channel0 + segment.quotient) * wave.segments + segment.remainder];
      merge_into(own, {static_cast<double>(count), m.mean, m.m2});
    }
    merge_threads(own);
    if (threadIdx.x != 0) continue;
    if (wave.chunks == 1) {
      wave.norms[chunk.quotient] = norm_from(own, a.eps);
    } else {
      wave.merged[item] = own;
    }
  }
}

// One CTA for each group.
__global__ void __launch_bounds__(kThreads)
    merge_chunks_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Wave wave) {
  for (int64_t group = blockIdx.x; group < wave.count * a.groups; group += gridDim.x) {
    Moments own = {0, 0, 0};
    for (int64_t i = threadIdx.x; i < wave.chunks; i += kThreads) merge_into(own, wave.merged[group * wave.chunks + i]);
    merge_threads(own);
    if (threadIdx.x == 0) wave.norms[group] = norm_from(own, a.eps);
  }
}

constexpr int kOwn = 4;  // values of a thread

// Norm of value z of (sample of the wave, channel of C_out).
__device__ float normalised(const Arguments& a, const Wave& wave, float z, int64_t sample, int64_t channel) {
  if (a.groups == 0) return z;
  const float4 group = __ldg(reinterpret_cast<const float4*>(wave.norms) + sample * a.groups +
                             divide(channel, a.o_per_norm_group).quotient);
  const Norm norm = {group.x, group.y, group.z, group.w};
  const float centred = z - norm.mean_high - norm.mean_low;
  if (a.gamma == nullptr) return centred * norm.rstd_high;
  const float gamma = load(a.gamma, a.param_dtype, channel);
  float scale = fmaf(norm.rstd_high, gamma, norm.rstd_low * gamma);
  scale = scale > FLT_MAX ? FLT_MAX : scale < -FLT_MAX ? -FLT_MAX : scale;
  return fmaf(centred, scale, load(a.beta, a.param_dtype, channel));
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    normalise_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Wave wave, int64_t elements) {
  const bool ncl = a.layout == CONVNORM_NCL, glu = a.glu < a.post_count;
  const int64_t inner = ncl ? wave.positions : a.c_y, outer = ncl ? a.c_y : wave.positions;
  const int64_t partner = ncl ? a.c_y * wave.positions : a.c_y;  // from z of a channel to z of the one that gates it
  for (int64_t first = int64_t{blockIdx.x} * kThreads * kOwn; first < elements;
       first += int64_t{gridDim.x} * kThreads * kOwn) {
    Position at[kOwn];
    float v[kOwn], gate[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t index = first + i * kThreads + threadIdx.x;
      v[i] = gate[i] = 0;
      at[i] = {0, 0, 0, index < elements};
      if (!at[i].inside) continue;
      const Division row = divide(index, inner), sample = divide(row.quotient, outer);
      at[i].n = wave.first + sample.quotient;
      at[i].channel = ncl ? sample.remainder : row.remainder;
      const int64_t column = ncl ? row.remainder : sample.remainder;
      at[i].l = wave.position + column;
      at[i].inside = at[i].l < valid_outputs(a, sample_length(a, at[i].n));
      if (!at[i].inside) continue;
      const int64_t z = ncl ? (sample.quotient * a.o + at[i].channel) * wave.positions + column
                            : (sample.quotient * wave.positions + column) * a.o + at[i].channel;
      v[i] = normalised(a, wave, wave.z[z], sample.quotient, at[i].channel);
      if (glu) gate[i] = normalised(a, wave, wave.z[z + partner], sample.quotient, at[i].channel + a.c_y);
    }
    apply_post(a, 0, a.glu, v, [&](int i) { return at[i]; });
    if (glu) {
      apply_post(a, 0, a.glu, gate, [&](int i) {
        return Position{at[i].n, at[i].channel + a.c_y, at[i].l, at[i].inside};
      });
#pragma unroll
      for (int i = 0; i < kOwn; ++i) v[i] *= DeviceMath::sigmoid(gate[i]);
      apply_post(a, a.glu + 1, a.post_count, v, [&](int i) { return at[i]; });
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t index = first + i * kThreads + threadIdx.x;
      if (index < elements) store<Element>(a.y, y_index(a, at[i]), at[i].inside ? v[i] : 0.0f);
    }
  }
}

}  // namespace

void merge(const Arguments& a, const Wave& wave, cudaStream_t stream) {
  const int64_t items = wave.count * a.groups * wave.chunks;
  launch("launching any_arch's merge of segments", merge_segments_kernel,
         {.grid = dim3(grid_for(items)), .block = dim3(kThreads)}, stream, a, wave, items);
  if (wave.chunks == 1) return;
  launch("launching any_arch's merge of chunks", merge_chunks_kernel,
         {.grid = dim3(grid_for(wave.count * a.groups)), .block = dim3(kThreads)}, stream, a, wave);
}

void normalise(const Arguments& a, const Wave& wave, cudaStream_t stream) {
  const int64_t elements = wave.count * a.c_y * wave.positions;
  with_device_element(a.dtype, [&](auto element) {
    launch("launching any_arch's normalisation", normalise_kernel<decltype(element)>,
           {.grid = dim3(grid_for((elements + kThreads * kOwn - 1) / (kThreads * kOwn))), .block = dim3(kThreads)},
           stream, a, wave, elements);
  });
}

}  // namespace convnorm::cuda::any_arch
