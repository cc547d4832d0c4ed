// The weight in the order in which the kernel's lanes take it: [tile][block][tap][part][lane][8], 16-bit parts, zeros
// past the last channel. A lane's eight are the A operand of mma.sync: with g = lane / 4 and q = lane % 4, element
// 2 * i + e is row g + 8 * (i & 1) and input channel q + 4 * (2 * (i >> 1) + e) of the block. For six products the
// eight stay fp32: [tile][block][tap][half of the eight][lane][4].
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm90_stream/launch.hpp"
#include "kernels/cuda/sm90_stream/plan.hpp"

namespace convnorm::cuda::sm90_stream {

namespace {

struct Layout {
  int64_t c_in, c_out, taps;
  int blocks, tile_channels, parts;
};

// A thread writes all of one lane.
template <class Element, class Stored>
__global__ void pack_lanes(const Element* weight, Stored* packed, Layout layout, int64_t lanes) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= lanes) return;
  const int lane = static_cast<int>(index % 32);
  const int64_t tap = index / 32 % layout.taps, block = index / 32 / layout.taps % layout.blocks;
  const int64_t tile = index / 32 / layout.taps / layout.blocks;
  constexpr bool kWhole = std::is_same_v<Stored, float>;
  Stored* to = packed + (index / 32 * (kWhole ? 1 : layout.parts) * 32 + (kWhole ? 0 : lane)) * 8;
  for (int j = 0; j < 8; ++j) {
    const int i = j / 2, e = j % 2;
    const int row = lane / 4 + 8 * (i & 1);
    const int64_t output = tile * layout.tile_channels + row;
    const int64_t input = block * kBlockInputs + lane % 4 + 4 * (2 * (i >> 1) + e);
    const bool inside = row < layout.tile_channels && output < layout.c_out && input < layout.c_in;
    float value = inside ? to_float(weight[(output * layout.c_in + input) * layout.taps + tap]) : 0.0f;
    if constexpr (kWhole) {
      to[(j / 4 * 32 + lane) * 4 + j % 4] = value;
    } else {
      for (int part = 0; part < layout.parts; ++part) {
        const Stored bits = from_float<Stored>(value);
        to[part * 32 * 8 + j] = bits;
        value -= to_float(bits);
      }
    }
  }
}

}  // namespace

void pack(const Problem& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream) {
  const Layout layout = {problem.c, problem.o, problem.k, config.blocks, config.tile_channels, config.parts};
  const int64_t lanes = packed_elements(problem, config) / config.vectors_of_tap() / 8;
  LaunchShape shape;
  shape.block = dim3(256);
  shape.grid = dim3(static_cast<unsigned>((lanes + 255) / 256));
  const auto pack_as = [&](auto element, auto stored) {
    using Element = decltype(element);
    using Stored = decltype(stored);
    launch("launching sm90_stream's packing", pack_lanes<Element, Stored>, shape, stream,
           static_cast<const Element*>(weight), static_cast<Stored*>(packed), layout, lanes);
  };
  with_device_element(problem.dtype, [&](auto type) {
    if constexpr (sizeof(type) == 2) {
      pack_as(type, type);
    } else if (config.parts == 2) {
      pack_as(type, __nv_bfloat16());
    } else {
      pack_as(type, type);
    }
  });
}

}  // namespace convnorm::cuda::sm90_stream
