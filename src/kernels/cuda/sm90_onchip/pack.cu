// The weight as the ring takes it: [block][chunk][tap][k16][part][k8][64 rows][8 channels], 16-bit parts, zeros past
// the last channel.
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm90_onchip/launch.hpp"
#include "kernels/cuda/sm90_onchip/plan.hpp"

namespace convnorm::cuda::sm90_onchip {

namespace {

struct Layout {
  int64_t c_in, c_out, taps;
  int chunks, chunk_k16, parts;
};

// A thread writes all parts of eight channels of one row.
template <class Element, class Operand>
__global__ void pack_rows(const Element* weight, Operand* packed, Layout layout, int64_t rows) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= rows) return;
  int64_t rest = index;
  const int row = static_cast<int>(rest % kBlockRows);
  rest /= kBlockRows;
  const int k8 = static_cast<int>(rest % 2);
  rest /= 2;
  const int k16 = static_cast<int>(rest % layout.chunk_k16);
  rest /= layout.chunk_k16;
  const int64_t tap = rest % layout.taps;
  rest /= layout.taps;
  const int64_t chunk = rest % layout.chunks, block = rest / layout.chunks;

  const int64_t channel = ((chunk * layout.chunk_k16 + k16) * 2 + k8) * 8, output = block * kBlockRows + row;
  const int64_t step = ((block * layout.chunks + chunk) * layout.taps + tap) * layout.chunk_k16 + k16;
  Operand* destination = packed + step * layout.parts * (kStepBytes / 2) + (k8 * kBlockRows + row) * 8;
  for (int j = 0; j < 8; ++j) {
    const bool inside = output < layout.c_out && channel + j < layout.c_in;
    float value = inside ? to_float(weight[(output * layout.c_in + channel + j) * layout.taps + tap]) : 0.0f;
    for (int part = 0; part < layout.parts; ++part) {
      const Operand bits = from_float<Operand>(value);
      destination[part * (kStepBytes / 2) + j] = bits;
      value -= to_float(bits);
    }
  }
}

}  // namespace

void pack(const Problem& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream) {
  const Layout layout = {problem.c, problem.o, problem.k, config.chunks, config.chunk_k16, config.parts};
  const int64_t rows = packed_elements(problem, config) / config.parts / 8;
  LaunchShape shape;
  shape.block = dim3(256);
  shape.grid = dim3(static_cast<unsigned>((rows + 255) / 256));
  with_device_element(problem.dtype, [&](auto type) {
    using Element = decltype(type);
    using Operand = std::conditional_t<sizeof(Element) == 4, __nv_bfloat16, Element>;
    launch("sm90_onchip pack", pack_rows<Element, Operand>, shape, stream, static_cast<const Element*>(weight),
           static_cast<Operand*>(packed), layout, rows);
  });
}

}  // namespace convnorm::cuda::sm90_onchip
