// x (N, C_in, L) to the B operands of mma.sync.
//
// Column g of column tile j is place g * kTiles8 + j of the tile, and place = sample * 2^positions_log2 + position: so
// a lane loads kTiles8 neighbouring positions, and holds twice as many neighbouring results. A tap moves positions by a
// constant: that renames column tiles, and moves those that cross a lane by one shuffle.
// Of a block's 16 channels, lane q of a quad takes q, q + 4, q + 8 and q + 12: one load of a warp then covers four
// neighbouring rows of x. Packed weights follow.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/sm90_stream/traits.cuh"

namespace convnorm::cuda::sm90_stream {

// Two values as bf16 parts, the largest first: each is what the ones before it left, rounded. A part holds both values.
template <int kParts>
__device__ __forceinline__ void split_pair(float low, float high, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    const uint32_t bits = reinterpret_cast<const uint32_t&>(both);
    parts[part] = bits;
    low -= __uint_as_float(bits << 16);
    high -= __uint_as_float(bits & 0xffff0000u);
  }
}

// Of one block, as B operands: b[part][column tile][k half].
template <class T>
struct Operands {
  uint32_t b[T::kParts][T::kTiles8][2];
};

// input_position() of 32-bit positions, without a branch.
__device__ __forceinline__ int position_in_x(const Steps& a, int i, int length) {
  const int mirrored = i < 0 ? -i : 2 * (length - 1) - i;
  const int clamped = min(max(a.pad == CONVNORM_REFLECT ? mirrored : i, 0), length - 1);
  const int outside = a.pad == CONVNORM_ZEROS ? -1 : clamped;
  return static_cast<unsigned>(i) < static_cast<unsigned>(length) ? i : outside;
}

template <class T>
class Inputs {
 public:
  using Element = typename T::Element;
  static constexpr int kTiles8 = T::kTiles8;

  // A lane's share of a stage, of channel q + 4 * i: words[i * kXWords + w].
  struct Raw {
    uint32_t words[4 * T::kXWords];
  };

  __device__ __forceinline__ Inputs(const Parameters& p, int first_block, int lane) : p_(p), lane_(lane) {
    const Front& f = p.front;
    const int first_channel = first_block * kBlockInputs + (lane & 3);
    channels_left_ = f.c - first_channel;
    const int place = (lane >> 2) * kTiles8;
    const int n = place >> f.positions_log2;
    position_ = place & ((1 << f.positions_log2) - 1);
    x_ = static_cast<const Element*>(f.x) +
         static_cast<uint32_t>(((first_sample(f) + n) * f.c + first_channel) * f.l + (T::kShifts ? position_ : 0));
    const bool exists = n < samples_of_tile(f);
    inside_ = exists && position_ < (T::kShifts ? f.l : p.tail.l_out);
    if constexpr (!T::kShifts) {
      positions_inside_ = exists ? p.tail.l_out - position_ : 0;
      position_ = position_ * p.steps.stride - p.steps.pad_left;
    }
  }

  // With sums that are shifted: the lane's share of the next stage, zeros past the last channel and where it is not
  // wanted.
  __device__ __forceinline__ void load_next(Raw& raw, bool wanted) {
    const Front& f = p_.front;
    const char* row = reinterpret_cast<const char*>(x_);
    const int step = 4 * f.l * static_cast<int>(sizeof(Element));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool here = wanted && inside_ && (T::kStages > 0 || channels_left_ > 4 * i);
      uint32_t* to = raw.words + i * T::kXWords;
      if constexpr (sizeof(Element) == 2 && kTiles8 == 1) {
        ptx::load_16(row, here, to[0]);
      } else if constexpr (T::kXWords == 1) {
        ptx::load_32(row, here, to[0]);
      } else if constexpr (T::kXWords == 2) {
        ptx::load_64(row, here, to[0], to[1]);
      } else {
        ptx::load_128(row, here, to[0], to[1], to[2], to[3]);
      }
      row += step;
    }
    x_ = reinterpret_cast<const Element*>(row);
    channels_left_ -= kBlockInputs;
  }

  // With inputs that are shifted: the lane's share of a stage on its way into its part of a slot, zeros past the last
  // channel.
  __device__ __forceinline__ void copy(uint32_t slot, int stage) const {
    const Front& f = p_.front;
    const int left = channels_left_ - stage * kBlockInputs;
    const Element* rows = x_ + static_cast<int64_t>(stage * kBlockInputs) * f.l;
    constexpr int kBytes = 4 * T::kXVector, kVectors = T::kXWords / T::kXVector;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        ptx::copy_async_or_zeros<kBytes>(slot + ((i * kVectors + v) * 32 + lane_) * kBytes,
                                         rows + 4 * i * f.l + v * (kBytes / static_cast<int>(sizeof(Element))),
                                         inside_ && left > 4 * i);
      }
    }
  }

  // What copy() has brought.
  __device__ __forceinline__ Raw read(const unsigned char* slot) const {
    Raw raw;
    constexpr int kBytes = 4 * T::kXVector, kVectors = T::kXWords / T::kXVector;
#pragma unroll
    for (int i = 0; i < 4 * kVectors; ++i) {
      const unsigned char* from = slot + (i * 32 + lane_) * kBytes;
      uint32_t* to = raw.words + i * T::kXVector;
      if constexpr (kBytes == 16) {
        const uint4 v = *reinterpret_cast<const uint4*>(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
      } else if constexpr (kBytes == 8) {
        const uint2 v = *reinterpret_cast<const uint2*>(from);
        to[0] = v.x, to[1] = v.y;
      } else {
        to[0] = *reinterpret_cast<const uint32_t*>(from);
      }
    }
    return raw;
  }

  // Without shifts: the same, of one tap after the other, from wherever stride, dilation and padding lead. Every load
  // has a register of its own and none is behind a branch: else each would wait for the one before.
  __device__ __forceinline__ void load_next_tap(Raw& raw, bool wanted) {
    const Front& f = p_.front;
    const Steps& a = p_.steps;
    const int stride = a.stride;
#pragma unroll
    for (int j = 0; j < kTiles8; ++j) {
      const int from = position_in_x(a, position_ + j * stride, f.l);
      const bool inside = wanted && j < positions_inside_ && from >= 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Element* element = x_ + (4 * i * f.l + from);
        const bool here = inside && channels_left_ > 4 * i;
        if constexpr (sizeof(Element) == 4) {
          ptx::load_32(element, here, raw.words[i * T::kXWords + j]);
        } else {
          ptx::load_16(element, here, raw.words[i * T::kXWords + j]);
        }
      }
    }
    const int dilation = a.dilation;
    const bool last = ++tap_ == f.taps;
    tap_ = last ? 0 : tap_;
    position_ += dilation - (last ? f.taps * dilation : 0);
    x_ += last ? kBlockInputs * f.l : 0;
    channels_left_ -= last ? kBlockInputs : 0;
  }

  __device__ __forceinline__ Operands<T> operands(const Raw& raw) const {
    Operands<T> out;
#pragma unroll
    for (int j = 0; j < kTiles8; ++j) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        if constexpr (T::kParts > 1) {
          uint32_t parts[T::kParts];
          split_pair(__uint_as_float(raw.words[2 * u * kTiles8 + j]),
                     __uint_as_float(raw.words[(2 * u + 1) * kTiles8 + j]), parts);
#pragma unroll
          for (int part = 0; part < T::kParts; ++part) out.b[part][j][u] = parts[part];
        } else if constexpr (T::kXPairs) {
          const uint32_t low = raw.words[2 * u * T::kXWords + j / 2];
          const uint32_t high = raw.words[(2 * u + 1) * T::kXWords + j / 2];
          out.b[0][j][u] = __byte_perm(low, high, j % 2 == 0 ? 0x5410 : 0x7632);
        } else {
          out.b[0][j][u] = raw.words[2 * u * kTiles8 + j] | raw.words[(2 * u + 1) * kTiles8 + j] << 16;
        }
      }
    }
    return out;
  }

  // Column tile j of the operand of a tap that reads `shift` positions further: zeros where that leaves the sample.
  __device__ __forceinline__ uint32_t shifted(const uint32_t (&b)[kTiles8][2], int j, int u, int shift) const {
    const int from = (j + shift + 8 * kTiles8) % kTiles8;
    const int lanes = (j + shift + 8 * kTiles8) / kTiles8 - 8;
    if (lanes == 0) return b[from][u];
    const int lanes_of_sample = (1 << p_.front.positions_log2) / kTiles8;  // columns g that belong to one sample
    const int own = (lane_ >> 2) & (lanes_of_sample - 1);
    const uint32_t moved = __shfl_sync(~0u, b[from][u], lane_ + 4 * lanes);
    return static_cast<unsigned>(own + lanes) < static_cast<unsigned>(lanes_of_sample) ? moved : 0;
  }

 private:
  const Parameters& p_;
  const int lane_;
  int channels_left_;         // from this lane's first one on, in the next stage or in stage 0
  const Element* x_;          // that channel, and with shifts its first position
  int position_;              // of column tile 0: of y, and without shifts of x, at the next tap
  bool inside_;               // neither sample nor position is one that pads to a power of two
  int positions_inside_ = 0;  // without shifts: of y from that of column tile 0 on
  int tap_ = 0;               // without shifts: the next one
};

}  // namespace convnorm::cuda::sm90_stream
