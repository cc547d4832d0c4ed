// x as the slots of its tiles hold it, once for all tiles above one another:
// [sample block][column tile][chunk][part][k8][row][8 channels]. Rows that are zeros in all tiles are left out.
#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/collective/x_rows.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/sm90_onchip/launch.cuh"

namespace convnorm::cuda::sm90_onchip {

namespace {

constexpr int kThreads = 128;

template <class T>
class Arranger : XRows<T> {
  using Base = XRows<T>;
  using Base::begin_tile, Base::source_of, Base::load_channels, Base::store_item;
  using Base::c_, Base::walk_;

 public:
  __device__ __forceinline__ explicit Arranger(const Parameters& p) : Base(p) {}

  // An item of a tile, of its eights of channels and their rows that are arranged.
  __device__ __forceinline__ void arrange(int sample_block, int column_tile, int item, unsigned char* to) {
    walk_.first_sample = sample_block << c_.samples_log2;
    walk_.first_position = column_tile * c_.tile_positions;
    begin_tile(true);
    const int eights = 2 * c_.chunk_k16, eight = item / c_.arranged_rows, row = item - eight * c_.arranged_rows;
    const int chunk = eight / eights, k8 = eight - chunk * eights;
    if (chunk >= c_.chunks) return;
    uint32_t bits[8];
    load_channels(bits, source_of(k8 * c_.rows() + c_.arranged_row + row, true), chunk, true);
    const int64_t tile = int64_t{sample_block} * c_.column_tiles + column_tile;
    store_item(bits, to + (tile * c_.chunks + chunk) * c_.arranged_chunk_bytes() + (k8 * c_.arranged_rows + row) * 16);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) arrange(const __grid_constant__ Parameters p) {
  let_successor_begin();
  const int item = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  Arranger<T>(p).arrange(static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y), item, p.arranged_x);
}

template <class Element, int kParts>
void launch_arrange_parts(const Parameters& p, cudaStream_t stream) {
  const Config& c = p.config;
  LaunchShape shape;
  const int items = c.chunks * 2 * c.chunk_k16 * c.arranged_rows;
  shape.grid = dim3(static_cast<unsigned>(quotient_up(items, kThreads)), static_cast<unsigned>(c.column_tiles),
                    static_cast<unsigned>(c.sample_blocks));
  shape.block = dim3(kThreads);
  launch("sm90_onchip arrange", arrange<Traits<Element, kParts, 128, false, false>>, shape, stream, p);
}

}  // namespace

void launch_arrange(Parameters p, cudaStream_t stream) {
  p.plan.x_part_bytes = 2 * p.config.chunk_k16 * p.config.arranged_rows * 16;  // rows are left out
  with_device_element(p.arguments.dtype, [&](auto type) {
    using Element = decltype(type);
    if constexpr (sizeof(Element) == 4) {
      if (p.config.parts == 3) return launch_arrange_parts<Element, 3>(p, stream);
      if (p.config.parts == 2) return launch_arrange_parts<Element, 2>(p, stream);
    }
    return launch_arrange_parts<Element, 1>(p, stream);
  });
}

}  // namespace convnorm::cuda::sm90_onchip
