#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/launch.hpp"

namespace convnorm::cuda::moments {

namespace {

struct Weight {
  const void* values;  // (C_out, columns)
  int64_t channels;    // of a conv group
  int64_t gate;        // channels between a channel and the one that gates it; 0 without a glu
  int columns;
};

// Channel of a conv group that a row holds, or a negative number.
__device__ __forceinline__ int64_t channel_of(const Weight& w, const Config& c, int row) {
  const int block = row / kBlockRows, in_block = row % kBlockRows;
  const bool gate = in_block >= c.block_channels;
  const int64_t in_class =
      int64_t{block % c.class_blocks} * c.block_channels + (gate ? in_block - c.block_channels : in_block);
  const int64_t channel = block / c.class_blocks + c.classes * in_class;
  if (channel >= (w.gate > 0 ? w.gate : w.channels)) return -1;
  return channel + (gate ? w.gate : 0);
}

// A warp for each row: its scale, a power of two that brings its largest weight to [1, 2).
template <class Element>
__global__ void __launch_bounds__(kThreads) scale_kernel(Weight w, Config c, float* scales, int64_t rows) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (i >= rows) return;
  const int64_t conv_group = i / c.rows(), channel = channel_of(w, c, static_cast<int>(i % c.rows()));
  float largest = 0;
  if (channel >= 0 && c.parts > 1) {
    const auto* row = static_cast<const Element*>(w.values) + (conv_group * w.channels + channel) * w.columns;
    for (int r = static_cast<int>(threadIdx.x) % 32; r < w.columns; r += 32)
      largest = fmaxf(largest, fabsf(to_float(row[r])));
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, mask));
  int exponent = 1;
  if (largest > 0 && largest < 3e38f) frexpf(largest, &exponent);
  if (threadIdx.x % 32 == 0) scales[i] = ldexpf(1.0f, 1 - max(exponent, -100));
}

// A thread for each lane of each fragment.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    operand_kernel(Weight w, Config c, const float* scales, uint4* operands, int64_t lanes) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= lanes) return;
  const int lane = static_cast<int>(i % 32);
  const int64_t fragment = i / 32;  // (conv group, block, k16)
  const int k16 = static_cast<int>(fragment % c.k16), block = static_cast<int>(fragment / c.k16 % c.blocks());
  const int64_t conv_group = fragment / c.k16 / c.blocks();
  uint32_t words[2][4] = {};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    // Words 0 and 1 are rows g and g + 8 at columns 2q and 2q + 1, words 2 and 3 the same rows 8 columns further.
    const int word = j / 2, row = block * kBlockRows + lane / 4 + 8 * (word % 2);
    const int r = k16 * kDepth + 2 * (lane % 4) + 8 * (word / 2) + j % 2;
    const int64_t channel = channel_of(w, c, row);
    if (channel < 0 || r >= w.columns) continue;
    const Element element = static_cast<const Element*>(w.values)[(conv_group * w.channels + channel) * w.columns + r];
    if constexpr (sizeof(Element) == 4) {
      const float value = element * scales[conv_group * c.rows() + row];
      const __half high = __float2half_rn(value), low = __float2half_rn(value - __half2float(high));
      words[0][word] |= uint32_t{__half_as_ushort(high)} << 16 * (j % 2);
      words[1][word] |= uint32_t{__half_as_ushort(low)} << 16 * (j % 2);
    } else {
      words[0][word] |= uint32_t{reinterpret_cast<const unsigned short&>(element)} << 16 * (j % 2);
    }
  }
  for (int part = 0; part < c.parts; ++part) {
    operands[(fragment * c.parts + part) * 32 + lane] =
        make_uint4(words[part][0], words[part][1], words[part][2], words[part][3]);
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads) plain_kernel(Weight w, float* plain, int64_t elements) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const int64_t channel = i % w.channels, column = i / w.channels % w.columns, conv_group = i / w.channels / w.columns;
  plain[i] = to_float(static_cast<const Element*>(w.values)[(conv_group * w.channels + channel) * w.columns + column]);
}

}  // namespace

void pack(const Arguments& a, const Config& config, const void* weight, void* packed, cudaStream_t stream) {
  const PackedPlan plan = packed_plan(config, a.conv_groups, a.o_per_conv_group);
  auto* bytes = static_cast<unsigned char*>(packed);
  auto* scales = reinterpret_cast<float*>(bytes + plan.scales);
  const Weight w = {weight, a.o_per_conv_group, a.glu < a.post_count ? a.c_y : 0, config.columns};
  const auto shape = [](int64_t items, int per_cta) {
    return LaunchShape{.grid = dim3(static_cast<unsigned>((items + per_cta - 1) / per_cta)), .block = dim3(kThreads)};
  };
  const int64_t rows = a.conv_groups * config.rows(), lanes = a.conv_groups * config.blocks() * config.k16 * 32;
  const int64_t elements = a.o * config.columns;
  with_device_element(a.dtype, [&](auto type) {
    using Element = decltype(type);
    launch("launching moments' scaling of weights", scale_kernel<Element>, shape(rows, kWarps), stream, w, config,
           scales, rows);
    launch("launching moments' packing", operand_kernel<Element>, shape(lanes, kThreads), stream, w, config,
           static_cast<const float*>(scales), reinterpret_cast<uint4*>(bytes + plan.operands), lanes);
    launch("launching moments' copying of weights", plain_kernel<Element>, shape(elements, kThreads), stream, w,
           reinterpret_cast<float*>(bytes + plan.plain), elements);
  });
}

}  // namespace convnorm::cuda::moments
