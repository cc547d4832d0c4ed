// The weight in the order of fragments: [16 rows][chunk][tap][k16][part][lane][8], 16-bit parts, zeros past the last
// channel. The eight values of a lane are those that mma.sync wants in its four registers.
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sm80_onchip/launch.hpp"
#include "kernels/cuda/sm80_onchip/plan.hpp"

namespace convnorm::cuda::sm80_onchip {

namespace {

struct Layout {
  int64_t c_in, c_out, taps;  // c_in: of a conv group
  int chunks, chunk_k16, parts;
};

// A thread writes all parts of one lane's eight values.
template <class Element, class Operand>
__global__ void pack_fragments(const Element* weight, Operand* packed, Layout layout, int64_t fragments) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= fragments) return;
  const int lane = static_cast<int>(index % 32);
  const int64_t step = index / 32;
  int64_t rest = step;
  const int k16 = static_cast<int>(rest % layout.chunk_k16);
  rest /= layout.chunk_k16;
  const int64_t tap = rest % layout.taps;
  rest /= layout.taps;
  const int64_t chunk = rest % layout.chunks, first_row = rest / layout.chunks * kWarpRows;

  const int64_t first_output = first_row + lane / 4;
  const int64_t first_channel = (chunk * layout.chunk_k16 + k16) * 16 + lane % 4 * 2;
  Operand* destination = packed + (step * layout.parts * kStepVectors + lane) * 8;
  for (int i = 0; i < 8; ++i) {
    const int64_t output = first_output + i / 2 % 2 * 8, channel = first_channel + i / 4 * 8 + i % 2;
    const bool inside = output < layout.c_out && channel < layout.c_in;
    float value = inside ? to_float(weight[(output * layout.c_in + channel) * layout.taps + tap]) : 0.0f;
    for (int part = 0; part < layout.parts; ++part) {
      const Operand bits = from_float<Operand>(value);
      destination[part * kStepVectors * 8 + i] = bits;
      value -= to_float(bits);
    }
  }
}

}  // namespace

void pack(const Problem& problem, const Config& config, const void* weight, void* packed, cudaStream_t stream) {
  const Layout layout = {problem.c / problem.conv_groups, problem.o, problem.k, config.chunks, config.chunk_k16, config.parts};
  const int64_t fragments = packed_elements(problem, config) / config.parts / 8;
  LaunchShape shape;
  shape.block = dim3(256);
  shape.grid = dim3(static_cast<unsigned>((fragments + 255) / 256));
  with_device_element(problem.dtype, [&](auto type) {
    using Element = decltype(type);
    using Operand = std::conditional_t<sizeof(Element) == 4, __nv_bfloat16, Element>;
    launch("sm80_onchip pack", pack_fragments<Element, Operand>, shape, stream, static_cast<const Element*>(weight),
           static_cast<Operand*>(packed), layout, fragments);
  });
}

}  // namespace convnorm::cuda::sm80_onchip
