// The last launch on Hopper where a GELU alone follows the norm of few products: x to y. A CTA takes a window of
// positions and some blocks of rows. A tile is a block's 16 rows at the positions of all warps that compute, which
// leave it in shared memory; two more warps have the copy engine write its rows, 2 KiB each, while the next tile is
// computed. A lane holds the operands of its positions in registers for all blocks of a class.
#pragma once

#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/collective/wait.cuh"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/sample.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/math.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/recompute/inputs.cuh"
#include "kernels/cuda/recompute/row_writer.cuh"

namespace convnorm::cuda::moments {

// max(x, 0) - |x| Phi(-|x|). What the norm gives is finite or NaN, or infinite where gamma is near the end of fp32:
// then minus infinity gives 0 in 16 bits.
template <class Element>
__device__ __forceinline__ float gelu(float x) {
  if constexpr (sizeof(Element) == 4) return DeviceMath::gelu_erf(x);
  const float u = fminf(fabsf(x), 16.0f);
  return fmaf(-u, ptx::exp2_approximate(recompute::phi_exponent(u)), ptx::relu_of(x));
}

// kK: mma.sync along the pairs of all products.
template <class Element, int kK>
class Result {
 public:
  using Operand = std::conditional_t<sizeof(Element) == 4, __half, Element>;
  static constexpr int kBytes = sizeof(Element), kVector = 16 / kBytes, kSector = recompute::kSectorBytes / kBytes;
  static constexpr int kQuads = result_quads(kBytes), kWarpPositions = kQuads * recompute::kQuad;
  static constexpr int kPitch = result_pitch(kBytes), kTileBytes = recompute::kBlockRows * kPitch;

  __device__ __forceinline__ Result(const ResultParameters& p, unsigned char* shared, int* columns, uint64_t* barriers)
      : p_(p),
        a_(p.arguments),
        c_(p.stream),
        r_(p.result),
        shared_(shared),
        columns_(columns),
        barriers_(ptx::shared_address(barriers)),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(__shfl_sync(~0u, thread_ / 32, 0)),  // known to be the same in all lanes: the copies' addresses
        lane_(thread_ % 32) {
    const int rest = static_cast<int>(blockIdx.x) / r_.slices, unit = rest / r_.sets;
    first_block_ = rest % r_.sets * r_.set_blocks, end_block_ = min(first_block_ + r_.set_blocks, c_.blocks());
    n_ = unit / static_cast<int>(a_.conv_groups), conv_group_ = unit % static_cast<int>(a_.conv_groups);
    length_ = static_cast<int>(sample_length(a_, n_));
    valid_ = outputs_of(a_, n_);
  }

  __device__ __forceinline__ void run() {
    if (warp_ >= kWarps) {
      if (thread_ == kThreads) {
        for (int i = 0; i < kResultBuffers; ++i) ptx::mbarrier_init(filled(i), kWarps), ptx::mbarrier_init(sent(i), 1);
      }
      for (int i = 0; i < kWindowBarriers; ++i) await_all();
      return send_tiles(first_position());
    }
    begin_window();
    place_columns();
    load_weights(weights_of(first_block_), next_);
    wait_for_predecessor();
    load_rows();
    end_window();
    compute_tiles(first_position());
  }

 private:
  static constexpr int kWindowBarriers = sizeof(Element) == 4 ? 2 : 1;  // of the CTA, until tiles begin

  // By all warps of the CTA, each at its own place in the code, where __syncthreads() has to be one for all.
  static __device__ __forceinline__ void await_all() {
    constexpr int kWindow = 1;
    ptx::named_barrier(kWindow, kResultThreads);
  }

  // Warps that compute have left a tile in this buffer; the copy engine has read it.
  __device__ __forceinline__ uint32_t filled(int buffer) const { return barriers_ + 16 * buffer; }
  __device__ __forceinline__ uint32_t sent(int buffer) const { return barriers_ + 16 * buffer + 8; }

  // Windows of neighbouring CTAs neighbour each other: at any time they write one stretch of every row.
  __device__ __forceinline__ int first_position() const { return static_cast<int>(blockIdx.x) % r_.slices * r_.window; }
  template <class T>
  __device__ __forceinline__ T* shared_at(int offset) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  __device__ __forceinline__ uint32_t* words() const { return shared_at<uint32_t>(p_.shared.inputs); }
  __device__ __forceinline__ const recompute::Row* rows() const { return shared_at<recompute::Row>(p_.shared.rows); }
  __device__ __forceinline__ int64_t unit() const { return n_ * a_.conv_groups + conv_group_; }
  __device__ __forceinline__ int stride() const { return static_cast<int>(a_.stride); }
  __device__ __forceinline__ int l_out() const { return static_cast<int>(a_.l_out); }
  __device__ __forceinline__ int channels() const { return static_cast<int>(a_.c_per_conv_group); }
  __device__ __forceinline__ int taps_apart() const { return a_.k > 1 ? static_cast<int>(a_.dilation) : 0; }

  // --- inputs

  // 16-bit inputs as they stand, to their words; fp32 to where tiles lie later.
  __device__ __forceinline__ void begin_window() const {
    const int from = (first_position() - kSector) * stride() - static_cast<int>(a_.pad_left), width = r_.width;
    const recompute::Source<Element> x(a_, n_, conv_group_, from, length_);
    for (int c = 0; c < channels(); ++c) {
      const Element* const row = x.first + c * x.channel;
      if (from >= 0 && from + width <= length_) {
#pragma unroll 4
        for (int i = thread_; i < width; i += kThreads) put_input(c, i, row + from + i, true);
      } else {
#pragma unroll 1
        for (int i = thread_; i < width; i += kThreads) {
          const int at = x.at(a_, i);
          put_input(c, i, row + max(at, 0), at >= 0);
        }
      }
    }
    ptx::commit_copies();
  }
  __device__ __forceinline__ void put_input(int channel, int i, const Element* from, bool wanted) const {
    if constexpr (sizeof(Element) == 4) {
      float* const to = shared_at<float>(p_.shared.tiles) + channel * r_.width + i;
      ptx::copy_async_or_zeros<4>(ptx::shared_address(to), from, wanted);
    } else {
      const Element value = wanted ? __ldg(from) : from_float<Element>(0.0f);
      auto* const halves = reinterpret_cast<Element*>(words());
      if (c_.pairs_of_channels) {
        halves[2 * (channel / 2 * r_.width + i) + channel % 2] = value;
      } else {
        halves[2 * (channel * r_.width + i)] = value;
        if (i >= taps_apart()) halves[2 * (channel * r_.width + i - taps_apart()) + 1] = value;
      }
    }
  }

  __device__ __forceinline__ void end_window() const {
    ptx::wait_copies<0>();
    await_all();
    if constexpr (sizeof(Element) == 4) {
      const float* const given = p_.given.inputs + unit() * (1 + channels());
      const float scale = *given;
      const auto* const raw = shared_at<float>(p_.shared.tiles);
      const int width = r_.width, upper_to_lower = p_.shared.part / 4;
      const int step = c_.pairs_of_channels ? 2 : 1, second = c_.pairs_of_channels ? width : taps_apart();
      for (int c = 0; c < channels(); c += step) {
        const float centre = given[1 + c], other = given[c + step];
        uint32_t* const to = words() + c / step * width;
#pragma unroll 4
        for (int i = thread_; i < width; i += kThreads) {
          const float* const from = raw + c * width + i;
          // What lies behind a row has a weight of 0, and must be a number.
          const float own = from[0], next = step == 2 || i + second < width ? from[second] : centre;
          recompute::split((own - centre) * scale, (next - other) * scale, to[i], to[i + upper_to_lower]);
        }
      }
      await_all();
    }
  }

  __device__ __forceinline__ void load_rows() const {
    const int first = first_block_ * recompute::kBlockRows, count = end_block_ * recompute::kBlockRows - first;
    const recompute::Row* const from = p_.given.rows + unit() * c_.rows() + first;
    auto* const to = shared_at<recompute::Row>(p_.shared.rows);
    for (int row = thread_; row < count; row += kThreads) to[row] = from[row];
  }

  // --- products

  // Where the pairs of a lane lie, in bytes, by its place in its quad: not held in registers, of which there are too
  // few.
  __device__ __forceinline__ void place_columns() const {
    if (thread_ >= 4) return;
    const int taps = static_cast<int>(a_.k), of_unit = c_.pairs_of_channels ? taps : (taps + 1) / 2;
#pragma unroll 1
    for (int i = 0; i < 2 * kK; ++i) {
      int pair = i / 2 * recompute::kPairsDeep + thread_ + i % 2 * 4, product = 0;
      // Weights of what is no pair are 0: any input serves.
      if (pair >= c_.products() * c_.pairs) pair = 0;
      while (pair >= c_.pairs) pair -= c_.pairs, ++product;
      const int unit = pair / of_unit, rest = pair - unit * of_unit;
      const int tap = c_.pairs_of_channels ? rest : max(0, min(2 * rest, taps - 2));
      const int at = 4 * (unit * r_.width + tap * static_cast<int>(a_.dilation)) + (product == 1 ? p_.shared.part : 0);
      columns_[4 * i + thread_] = at;
    }
  }

  // Where a block's lie.
  __device__ __forceinline__ const uint4* weights_of(int block) const {
    return reinterpret_cast<const uint4*>(static_cast<const unsigned char*>(a_.packed_weight()) + p_.packed.operands) +
           (int64_t{conv_group_} * c_.blocks() + block) * (kK * 32) + lane_;
  }
  static __device__ __forceinline__ void load_weights(const uint4* from, uint4 (&w)[kK]) {
#pragma unroll
    for (int i = 0; i < kK; ++i) w[i] = __ldg(from + i * 32);
  }

  // Of product b among a quad's positions; with it, a lane's values of two (fp32) or four products are one vector.
  static __device__ __forceinline__ constexpr int offset_of(int b) {
    return sizeof(Element) == 4 ? b / 2 * 16 + b % 2 * 2 : 2 * b;
  }

  // The operands of this warp's positions, the first of which lies `shift` before its place in the window.
  __device__ __forceinline__ void load_all_operands(int shift) {
    const int g = lane_ / 4;
    const int position = warp_ * kWarpPositions - shift + kSector + kVector * (g / 2) + g % 2;
    const unsigned char* const x = shared_ + p_.shared.inputs + 4 * position * stride();
    int at_pair[2 * kK];
#pragma unroll
    for (int i = 0; i < 2 * kK; ++i) at_pair[i] = columns_[4 * i + lane_ % 4];
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const unsigned char* const at = x + 4 * (quad * recompute::kQuad + offset_of(b)) * stride();
#pragma unroll
        for (int i = 0; i < 2 * kK; ++i) x_[quad][b][i] = *reinterpret_cast<const uint32_t*>(at + at_pair[i]);
      }
    }
  }

  // --- tiles

  // The blocks of this CTA, one after the other: enter(row_class, in_class) before the first of a class, then
  // body(number of the tile).
  template <class Enter, class Body>
  __device__ __forceinline__ void for_each_block(const Enter& enter, const Body& body) {
    int row_class = first_block_ / c_.class_blocks, in_class = first_block_ - row_class * c_.class_blocks;
    bool enters = true;
#pragma unroll 1
    for (int block = first_block_; block < end_block_; ++block) {
      if (enters) enter(row_class, in_class);
      body(block - first_block_);
      enters = ++in_class == c_.class_blocks;
      if (enters) in_class = 0, ++row_class;
    }
  }
  // Of a tile, by its number.
  static __device__ __forceinline__ int buffer_of(int tile) { return tile % kResultBuffers; }
  static __device__ __forceinline__ uint32_t parity_of(int tile) {
    return static_cast<uint32_t>(tile / kResultBuffers) & 1;
  }

  __device__ __forceinline__ Element* row_of(int row_class) const {
    return static_cast<Element*>(a_.y) + (n_ * a_.c_y + conv_group_ * a_.o_per_conv_group + row_class) * a_.l_out;
  }
  // From where a row begins within a sector, in positions.
  static __device__ __forceinline__ int shift_of(const Element* y) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(y) % recompute::kSectorBytes / sizeof(Element));
  }

  __device__ __forceinline__ void compute_tiles(int first) {
    int begin = 0;
    for_each_block(
        [&](int row_class, int) {
          const int shift = shift_of(row_of(row_class) + first);
          begin = first - shift;
          load_all_operands(shift);
        },
        [&](int number) {
          uint4 w[kK];
#pragma unroll
          for (int i = 0; i < kK; ++i) w[i] = next_[i];
          // Past the last block there is nothing to load: the last again.
          load_weights(weights_of(min(first_block_ + number + 1, end_block_ - 1)), next_);
          wait(sent(buffer_of(number)), parity_of(number) ^ 1, "a tile to be sent off");
          tile(w, number, begin);
          ptx::fence_proxy_async();
          __syncwarp();
          if (lane_ == 0) ptx::mbarrier_arrive(filled(buffer_of(number)));
        });
  }

  // What of a tile's rows is written, in positions: [head, first) and [last, end) element by element.
  struct Span {
    int head, first, last, end;
  };

  // By warps of their own, one for each buffer: the copy engine takes its time to accept what it is asked for, and has
  // the next tile before it has read the last one.
  __device__ __forceinline__ void send_tiles(int first) {
    int begin = 0, left = 0;
    Span span{};
    Element* y = nullptr;  // the block's first row
    uint32_t bytes = 0;
    const int64_t apart = r_.apart, block_apart = r_.block_apart;
    for_each_block(
        [&](int row_class, int in_class) {
          y = row_of(row_class);
          begin = first - shift_of(y + first);
          span.head = max(begin, 0), span.end = min(begin + r_.window, l_out());
          span.first = min(begin < 0 ? begin + kSector : begin, span.end);
          span.last = span.first + (span.end - span.first) / kVector * kVector;
          left = (static_cast<int>(a_.o_per_conv_group) - row_class + c_.classes - 1) / c_.classes;
          left -= in_class * recompute::kBlockRows, y += in_class * block_apart;
          bytes = static_cast<uint32_t>(max(span.last - span.first, 0) * kBytes);
        },
        [&](int number) {
          const int count = min(recompute::kBlockRows, left);
          Element* const rows = y;
          left -= recompute::kBlockRows, y += block_apart;
          const int buffer = buffer_of(number);
          if (buffer != warp_ - kWarps) return;
          wait(filled(buffer), parity_of(number), "a tile");
          if (bytes > 0 && ptx::elect()) {
            const uint64_t policy = ptx::evict_first_policy();
            const uint32_t source = ptx::shared_address(staged(buffer, 0, span.first - begin));
            Element* const to = rows + span.first;
            if (count == recompute::kBlockRows) {
#pragma unroll
              for (int i = 0; i < recompute::kBlockRows; ++i)
                ptx::bulk_store(to + i * apart, source + i * kPitch, bytes, policy);
            } else {
#pragma unroll 1
              for (int i = 0; i < count; ++i) ptx::bulk_store(to + i * apart, source + i * kPitch, bytes, policy);
            }
            ptx::commit_bulk_stores();
          }
          if (span.head < span.first || span.last < span.end) write_ends(buffer, span, begin, count, rows, apart);
          ptx::wait_bulk_stores_read<0>();
          __syncwarp();
          if (lane_ == 0) ptx::mbarrier_arrive(sent(buffer));
        });
  }

  __device__ __forceinline__ void write_ends(int buffer, const Span& span, int begin, int count, Element* to,
                                             int64_t apart) const {
    const int head = span.first - span.head, ends = head + span.end - span.last;
#pragma unroll 1
    for (int i = lane_; i < count * ends; i += 32) {
      const int row = i / ends, at = i - row * ends;
      const int position = at < head ? span.head + at : span.last + at - head;
      to[row * apart + position] = *staged(buffer, row, position - begin);
    }
  }

  __device__ __forceinline__ Element* staged(int buffer, int row, int column) const {
    return reinterpret_cast<Element*>(shared_ + p_.shared.tiles + buffer * kTileBytes + row * kPitch) + column;
  }

  // A block's rows at this warp's positions, of which the tile's first is `begin`.
  __device__ __forceinline__ void tile(const uint4 (&w)[kK], int number, int begin) const {
    constexpr float kNothing[4] = {};
    const int g = lane_ / 4, q = lane_ % 4;
    const recompute::Row* const rows = this->rows() + number * recompute::kBlockRows + g;
    const recompute::Row row[2] = {rows[0], rows[8]};
    Element* const to = staged(buffer_of(number), g, warp_ * kWarpPositions + kVector * q);
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      float v[2][8];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const uint32_t(&x)[2 * kK] = x_[quad][b];
        float d[4];
        ptx::mma<Operand>(d, w[0], x[0], x[1], kNothing);
#pragma unroll
        for (int k = 1; k < kK; ++k) ptx::mma<Operand>(d, w[k], x[2 * k], x[2 * k + 1]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          v[i / 2][2 * b + i % 2] = gelu<Element>(fmaf(d[i], row[i / 2].scale, row[i / 2].plus));
      }
      if (a_.lengths != nullptr) {
        const int left = valid_ - begin - warp_ * kWarpPositions - quad * recompute::kQuad - kVector * q;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (offset_of(i / 2) + i % 2 >= left) v[0][i] = v[1][i] = 0;
        }
      }
      recompute::stage_vectors<Element>(v, [&](int h, int first) {
        return to + 8 * h * (kPitch / kBytes) + quad * recompute::kQuad + offset_of(first / 2);
      });
    }
  }

  const ResultParameters& p_;
  const Arguments& a_;
  const recompute::Config& c_;
  const ResultConfig& r_;
  unsigned char* const shared_;
  int* const columns_;
  const uint32_t barriers_;  // two for each buffer
  const int thread_, warp_, lane_;
  int n_, conv_group_, first_block_, end_block_;
  int length_, valid_;  // inputs, outputs
  uint4 next_[kK];
  uint32_t x_[kQuads][4][2 * kK];
};

template <class Element, int kK>
__global__ void __launch_bounds__(kResultThreads, kResultPerSm)
    result_kernel(const __grid_constant__ ResultParameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ int columns[2 * kK * 4];
  __shared__ uint64_t barriers[2 * kResultBuffers];
  static_assert(sizeof(columns) + sizeof(barriers) <= kResultPlaces);
  Result<Element, kK>(p, shared, columns, barriers).run();
}

}  // namespace convnorm::cuda::moments
