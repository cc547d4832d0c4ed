// x to y in one pass. A warp multiplies a block of 16 rows with 32 positions at a time, on mma.sync; rows pass through
// shared memory and are written as whole vectors that start on sectors, whatever L_out is: the positions of a block
// begin where its rows, all alike, meet a sector.
#pragma once

#include "kernels/cuda/collective/row_ops.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/moments/dependent.cuh"
#include "kernels/cuda/moments/inputs.cuh"
#include "kernels/cuda/moments/launch.hpp"
#include "kernels/cuda/moments/stream_launch.hpp"
#include "kernels/cuda/ptx/mma.cuh"

namespace convnorm::cuda::moments {

// Of fp32 the scaled halves of fp16.
template <class Element>
using Operand = std::conditional_t<sizeof(Element) == 4, __half, Element>;

// An input in shared memory: both halves of an fp32 number, the first in the low bits; or a 16-bit number.
__device__ __forceinline__ uint32_t input_word(float value, float centre, float scale) {
  const float scaled = (value - centre) * scale;
  const __half high = __float2half_rn(scaled), low = __float2half_rn(scaled - __half2float(high));
  return uint32_t{__half_as_ushort(low)} << 16 | __half_as_ushort(high);
}
template <class Element>
__device__ __forceinline__ uint32_t input_word(Element value, float, float) {
  return reinterpret_cast<const unsigned short&>(value);
}

template <class Element, int kK16, Ops kOps>
class Window {
 public:
  static constexpr int kParts = sizeof(Element) == 4 ? 2 : 1;
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kSector = kSectorBytes / sizeof(Element);

  __device__ __forceinline__ Window(const Parameters& p, unsigned char* shared)
      : p_(p),
        a_(p.arguments),
        c_(p.config),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    int64_t rest = blockIdx.x;
    first_ = static_cast<int>(rest % c_.windows) * c_.window(), rest /= c_.windows;
    part_ = static_cast<int>(rest % c_.parts_of_blocks), rest /= c_.parts_of_blocks;
    conv_group_ = rest % a_.conv_groups, n_ = rest / a_.conv_groups;
    unit_ = n_ * a_.conv_groups + conv_group_;
    pitch_ = row_pitch(c_.warp_positions(), sizeof(Element));
    staged_ = shared + warp_ * kBlockRows * pitch_;
    inputs_ = shared + staging_bytes(c_, sizeof(Element));
    length_ = sample_length(a_, n_);
    valid_ = static_cast<int>(valid_outputs(a_, length_));
    glu_ = a_.glu < a_.post_count;
    count_ = static_cast<int>(glu_ ? a_.c_y : a_.o_per_conv_group);
  }

  __device__ __forceinline__ void run() {
    wait_for_predecessor();
    load_inputs();
    // Where this lane's columns lie, in bytes.
#pragma unroll
    for (int i = 0; i < 4 * kK16; ++i) {
      const int r = i / 4 * kDepth + 2 * (lane_ % 4) + i % 4 / 2 * 8 + i % 2, taps = static_cast<int>(a_.k);
      // Weights of what is no column are 0: any input serves.
      const int channel = r < c_.columns ? r / taps : 0, tap = r < c_.columns ? r - channel * taps : 0;
      at_[i] = 4 * (channel * p_.streamed_width + tap * static_cast<int>(a_.dilation));
    }
    __syncthreads();
    const int share = (c_.blocks() + c_.parts_of_blocks - 1) / c_.parts_of_blocks;
    const int end = min((part_ + 1) * share, c_.blocks()), step = kWarps / c_.position_warps;
    for (int block = part_ * share + warp_ / c_.position_warps; block < end; block += step) compute(block);
  }

 private:
  // Inputs of the window, and of the kSector positions before it.
  __device__ __forceinline__ void load_inputs() const {
    const float* sides =
        reinterpret_cast<const float*>(p_.workspace + p_.places.inputs) + unit_ * (1 + a_.c_per_conv_group);
    const float scale = kParts > 1 ? sides[0] : 1.0f;
    auto* words = reinterpret_cast<uint32_t*>(inputs_);
    read_inputs(a_, first_input<Element>(a_, n_, conv_group_), (first_ - kSector) * a_.stride - a_.pad_left,
                p_.streamed_width, length_, [&](int channel, int i, Element value) {
                  const float centre = kParts > 1 ? sides[1 + channel] : 0.0f;
                  words[channel * p_.streamed_width + i] = input_word(value, centre, scale);
                });
  }

  // Channel of y that row `in_block` of a block holds; not below the channels of the conv group where it holds none.
  __device__ __forceinline__ int channel_of(int block, int in_block) const {
    return block / c_.class_blocks + c_.classes * (block % c_.class_blocks * c_.block_channels + in_block);
  }

  __device__ __forceinline__ Element* y_row(int channel) const {
    return static_cast<Element*>(a_.y) + (n_ * a_.c_y + conv_group_ * a_.o_per_conv_group + channel) * a_.l_out;
  }

  __device__ __forceinline__ void compute(int block) const {
    const bool ncl = a_.layout == CONVNORM_NCL;
    const int g = lane_ / 4;
    int shift = 0;  // elements from the start of a sector to the window in every row of the block
    if (ncl) {
      const auto address = reinterpret_cast<uintptr_t>(y_row(channel_of(block, 0)) + first_);
      shift = static_cast<int>(address % kSectorBytes / sizeof(Element));
    }
    const int warp_first = first_ - shift + warp_ % c_.position_warps * c_.warp_positions();
    if (warp_first >= a_.l_out) return;
    uint4 w[kK16][kParts];
    const uint4* operands =
        reinterpret_cast<const uint4*>(static_cast<const unsigned char*>(a_.packed_weight()) + p_.packed.operands) +
        (conv_group_ * c_.blocks() + block) * (kK16 * kParts * 32) + lane_;
#pragma unroll
    for (int i = 0; i < kK16 * kParts; ++i) w[i / kParts][i % kParts] = __ldg(operands + i * 32);
    const Row* rows =
        reinterpret_cast<const Row*>(p_.workspace + p_.places.rows) + unit_ * c_.rows() + block * kBlockRows;
    const int channels[2] = {channel_of(block, g), channel_of(block, glu_ ? g : g + 8)};
    Row row[2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (channels[h] < count_) row[h] = rows[g + 8 * h];
    }
    const float start[4] = {row[0].shift, row[0].shift, row[1].shift, row[1].shift};
    // Bytes from an input of one position to that of the next; where column g of the first product lies.
    const int stride = 4 * static_cast<int>(a_.stride);
    const unsigned char* x =
        inputs_ + (warp_first - first_ + kSector + (sizeof(Element) == 4 ? 4 : 8) * (g / 2) + g % 2) * stride;
    const int end = min(static_cast<int>(a_.l_out) - warp_first, c_.warp_positions());
#pragma unroll 1
    for (int quad = 0; quad * kQuad < end; ++quad, x += kQuad * stride) {
      float v[2][8];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        float d[4];
        const auto input = [&](int i) {
          return *reinterpret_cast<const uint32_t*>(x + (at_[i] + offset_of(b) * stride));
        };
#pragma unroll
        for (int k = 0; k < kK16; ++k) {
          const uint32_t inputs[4] = {input(4 * k), input(4 * k + 1), input(4 * k + 2), input(4 * k + 3)};
          if (k == 0) {
            multiply(d, w[k], inputs, start);
          } else {
            multiply(d, w[k], inputs, d);
          }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i / 2][2 * b + i % 2] = fmaf(d[i], row[i / 2].scale, row[i / 2].plus);
      }
      finish(v, channels, warp_first + quad * kQuad);
      stage(v, quad);
    }
    __syncwarp();
    if (ncl) {
      write_rows(block, warp_first);
    } else {
      write_columns(block, warp_first);
    }
    __syncwarp();
  }

  // Of product b among a quad's positions; with it, a lane's values of two (fp32) or four products are one vector.
  static __device__ __forceinline__ int offset_of(int b) {
    return sizeof(Element) == 4 ? b / 2 * 16 + b % 2 * 2 : 2 * b;
  }
  // Position of value i of a row within its quad.
  __device__ __forceinline__ int position_of(int i) const {
    return offset_of(i / 2) + (sizeof(Element) == 4 ? 4 : 8) * (lane_ % 4) + i % 2;
  }

  static __device__ __forceinline__ void multiply(float (&d)[4], const uint4 (&w)[kParts], const uint32_t (&x)[4],
                                                  const float (&start)[4]) {
    using ptx::mma;
    const uint32_t high0 = __byte_perm(x[0], x[1], 0x5410), high8 = __byte_perm(x[2], x[3], 0x5410);
    if constexpr (kParts == 2) {
      const uint32_t low0 = __byte_perm(x[0], x[1], 0x7632), low8 = __byte_perm(x[2], x[3], 0x7632);
      mma<Operand<Element>>(d, w[1], high0, high8, start);
      mma<Operand<Element>>(d, w[0], low0, low8);
      mma<Operand<Element>>(d, w[0], high0, high8);
    } else {
      mma<Operand<Element>>(d, w[0], high0, high8, start);
    }
  }

  // Ops, and zeros past the valid outputs. With a glu the result is in v[0].
  __device__ __forceinline__ void finish(float (&v)[2][8], const int (&channels)[2], int position) const {
    const auto position_at = [&](int i) {
      const int l = position + position_of(i);
      return l < 0 || l >= valid_ ? int64_t{-1} : int64_t{l};
    };
    const auto place = [&](int h) {
      const int64_t channel = min(channels[h], count_ - 1) + conv_group_ * a_.o_per_conv_group;
      return RowPlace{n_, glu_ && h == 1 ? channel + a_.c_y : channel};
    };
    if constexpr (kOps == Ops::kGelu) {
#pragma unroll
      for (int i = 0; i < 16; ++i) v[i / 8][i % 8] = Formulas<DeviceMath>::gelu(v[i / 8][i % 8], 0);
    } else {
      apply_row_post<Element>(a_, 0, a_.glu, v, place, position_at);
    }
    if (kOps == Ops::kAny && glu_) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[0][i] *= DeviceMath::sigmoid(v[1][i]);
      const auto gated = [&](int) { return place(0); };
      apply_row_post<Element>(a_, a_.glu + 1, a_.post_count, reinterpret_cast<float(&)[1][8]>(v[0]), gated,
                              position_at);
    }
    if (position + kQuad <= valid_) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (position + position_of(i) >= valid_) v[0][i] = v[1][i] = 0;
    }
  }

  __device__ __forceinline__ Element* staged(int in_block, int column) const {
    return reinterpret_cast<Element*>(staged_ + in_block * pitch_) + column;
  }

  __device__ __forceinline__ void stage(const float (&v)[2][8], int quad) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int first = 0; first < 8; first += kVector) {
        alignas(16) Element out[kVector];
#pragma unroll
        for (int i = 0; i < kVector; ++i) out[i] = from_float<Element>(v[h][first + i]);
        *reinterpret_cast<uint4*>(staged(lane_ / 4 + 8 * h, quad * kQuad + position_of(first))) =
            *reinterpret_cast<const uint4*>(out);
      }
    }
  }

  // Neighbouring lanes write neighbouring vectors, of as many rows as a warp's positions leave them.
  __device__ __forceinline__ void write_rows(int block, int warp_first) const {
    const int vectors = c_.warp_positions() / kVector, rows = max(1, 32 / vectors);
    const int first_row = vectors >= 32 ? 0 : lane_ / vectors, column = (lane_ - first_row * vectors) * kVector;
    const int position = warp_first + column, l_out = static_cast<int>(a_.l_out);
    const bool whole = position >= 0 && position + kVector <= l_out;
    if (lane_ >= rows * vectors) return;
    const int64_t step = int64_t{rows} * c_.classes * a_.l_out;  // from a row of y to this lane's next
    Element* to = y_row(channel_of(block, first_row)) + position;
    const Element* from = staged(first_row, column);
    const int left = (count_ - channel_of(block, 0) + c_.classes - 1) / c_.classes;  // rows that hold channels
    const int end = min(left, c_.block_channels);
#pragma unroll 4
    for (int row = first_row; row < end;
         row += rows, to += step, from += rows * (pitch_ / static_cast<int>(sizeof(Element)))) {
      if (whole) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int j = 0; j < kVector; ++j) {
          if (position + j >= 0 && position + j < l_out) to[j] = from[j];
        }
      }
    }
  }

  // For channels last: neighbouring lanes write neighbouring channels.
  __device__ __forceinline__ void write_columns(int block, int warp_first) const {
    for (int i = lane_; i < c_.block_channels * c_.warp_positions(); i += 32) {
      const int in_block = i % c_.block_channels, column = i / c_.block_channels;
      const int channel = channel_of(block, in_block), position = warp_first + column;
      if (channel >= count_ || position >= a_.l_out) continue;
      static_cast<Element*>(a_.y)[(n_ * a_.l_out + position) * a_.c_y + conv_group_ * a_.o_per_conv_group + channel] =
          *staged(in_block, column);
    }
  }

  const Parameters& p_;
  const Arguments& a_;
  const Config& c_;
  const int warp_, lane_;
  int64_t n_, conv_group_, unit_, length_;
  int first_, valid_;  // positions
  int part_, pitch_;   // of the blocks; bytes
  int count_;          // channels of y in the conv group
  bool glu_;
  unsigned char* staged_;  // [16 rows][pitch] of this warp
  unsigned char* inputs_;  // words [channel][streamed_width]
  int at_[4 * kK16];
};

template <class Element, int kK16, Ops kOps>
__global__ void __launch_bounds__(kThreads, kPerSm) stream_kernel(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  Window<Element, kK16, kOps>(p, shared).run();
}

template <class Element, int kK16, Ops kOps>
void launch_stream_instance(const Parameters& p, cudaStream_t stream) {
  const Arguments& a = p.arguments;
  const int64_t ctas = a.n * a.conv_groups * p.config.parts_of_blocks * p.config.windows;
  launch("launching moments' convolution", stream_kernel<Element, kK16, kOps>,
         {.grid = dim3(static_cast<unsigned>(ctas)),
          .block = dim3(kThreads),
          .shared_bytes =
              static_cast<size_t>(stream_bytes(p.config, a.c_per_conv_group, p.streamed_width, sizeof(Element))),
          .programmatic = p.config.dependent},
         stream, p);
}

}  // namespace convnorm::cuda::moments
