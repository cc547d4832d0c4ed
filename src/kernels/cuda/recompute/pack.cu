#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/recompute/launch.hpp"

namespace convnorm::cuda::recompute {

namespace {

struct Weight {
  const void* values;  // (C_out, channels, taps)
  int64_t outputs;     // of a conv group
  int64_t gate;        // channels between a channel and the one that gates it; 0 without a glu
  int channels, taps;  // of inputs under the kernel
};

// Weights of the channel of a conv group that a row holds, or null.
template <class Element>
__device__ __forceinline__ const Element* row_at(const Weight& w, const Config& c, int64_t conv_group, int row) {
  const int block = row / kBlockRows, in_block = row % kBlockRows, channel = c.channel_of(block, in_block);
  if (channel >= c.end_of(block, static_cast<int>(w.gate > 0 ? w.gate : w.outputs))) return nullptr;
  const int64_t output = conv_group * w.outputs + channel + (in_block >= c.block_channels ? w.gate : 0);
  return static_cast<const Element*>(w.values) + output * w.channels * w.taps;
}

// A warp for each row: its scale, a power of two that brings its largest weight to [1, 2), and the sums of its taps.
template <class Element>
__global__ void __launch_bounds__(kThreads) row_kernel(Weight w, Config c, float* scales, double* sums, int64_t rows) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (i >= rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Element* row = row_at<Element>(w, c, i / c.rows(), static_cast<int>(i % c.rows()));
  float largest = 0;
  if (row != nullptr) {
    for (int r = lane; r < w.channels * w.taps; r += 32) largest = fmaxf(largest, fabsf(to_float(row[r])));
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, mask));
  int exponent = 1;
  // fp16 as it stands: scaling would round what is subnormal.
  if (largest > 0 && largest < 3e38f && !std::is_same_v<Element, __half>) frexpf(largest, &exponent);
  if (lane == 0) scales[i] = ldexpf(1.0f, 1 - max(exponent, -100));
  for (int channel = lane; channel < w.channels; channel += 32) {
    double sum = 0;
    for (int k = 0; row != nullptr && k < w.taps; ++k) sum += static_cast<double>(to_float(row[channel * w.taps + k]));
    sums[i * w.channels + channel] = sum;
  }
}

// Where in a row the numbers of a pair stand; negative: a zero.
struct Pair {
  int first, second;
};
__device__ __forceinline__ Pair pair_at(const Weight& w, const Config& c, int pair) {
  if (c.pairs_of_channels) {
    const int unit = pair / w.taps, tap = pair - unit * w.taps;
    return {2 * unit * w.taps + tap, (2 * unit + 1) * w.taps + tap};
  }
  if (w.taps == 1) return {pair, -1};
  // Of an odd number of taps the last pair holds one that the pair before it has.
  const int of_channel = (w.taps + 1) / 2, channel = pair / of_channel, tap = 2 * (pair - channel * of_channel);
  const int first = channel * w.taps;
  return tap + 1 < w.taps ? Pair{first + tap, first + tap + 1} : Pair{-1, first + tap};
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
  uint32_t words[4] = {};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    // Words 0 and 1 are rows g and g + 8 at pair q, words 2 and 3 the same rows four pairs further.
    const int row = block * kBlockRows + lane / 4 + 8 * (word % 2);
    const int number = k16 * kPairsDeep + lane % 4 + word / 2 * 4;
    const Element* weights = row_at<Element>(w, c, conv_group, row);
    if (weights == nullptr || number >= c.products() * c.pairs) continue;
    const int product = number / c.pairs;
    const Pair pair = pair_at(w, c, number - product * c.pairs);
    const float scale = scales[conv_group * c.rows() + row];
    const float values[2] = {pair.first < 0 ? 0.0f : to_float(weights[pair.first]) * scale,
                             pair.second < 0 ? 0.0f : to_float(weights[pair.second]) * scale};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t bits = 0;
      if constexpr (sizeof(Element) == 4) {
        // Of the three products, the first takes the lower half of the weight, the second that of the input.
        const __half high = __float2half_rn(values[j]), low = __float2half_rn(values[j] - __half2float(high));
        bits = __half_as_ushort(product == 0 ? low : high);
      } else {
        const Element value = from_float<Element>(values[j]);
        bits = reinterpret_cast<const unsigned short&>(value);
      }
      words[word] |= bits << 16 * j;
    }
  }
  operands[i] = make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace

void pack(const Arguments& a, const Config& config, const void* weight, void* packed, cudaStream_t stream) {
  const PackedPlan plan = packed_plan(config, a.conv_groups, a.c_per_conv_group);
  auto* bytes = static_cast<unsigned char*>(packed);
  auto* scales = reinterpret_cast<float*>(bytes + plan.scales);
  const Weight w = {weight, a.o_per_conv_group, a.glu < a.post_count ? a.c_y : 0, static_cast<int>(a.c_per_conv_group),
                    static_cast<int>(a.k)};
  const auto shape = [](int64_t items, int per_cta) {
    return LaunchShape{.grid = dim3(static_cast<unsigned>((items + per_cta - 1) / per_cta)), .block = dim3(kThreads)};
  };
  const int64_t rows = a.conv_groups * config.rows(), lanes = a.conv_groups * config.blocks() * config.k16 * 32;
  with_device_element(a.dtype, [&](auto type) {
    using Element = decltype(type);
    launch("launching recompute's scaling of weights", row_kernel<Element>, shape(rows, kWarps), stream, w, config,
           scales, reinterpret_cast<double*>(bytes + plan.sums), rows);
    launch("launching recompute's packing", operand_kernel<Element>, shape(lanes, kThreads), stream, w, config,
           static_cast<const float*>(scales), reinterpret_cast<uint4*>(bytes + plan.operands), lanes);
  });
}

}  // namespace convnorm::cuda::recompute
