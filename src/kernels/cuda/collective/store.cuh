// Accumulators to y, (N, C_y, L_out) or (N, L_out, C_y).
//
// What decides is the alignment of y's rows: a row written in pieces that do not start on 32-byte sectors costs two to
// three times. Rows that do start on sectors are written by vectors straight from registers; all others pass through a
// few hundred bytes of shared memory per warp, at the offset within a sector that they have in y, so that all but the
// first and the last piece of a row are whole aligned vectors.
#pragma once

#include <cstdint>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/collective/fragment.cuh"
#include "kernels/cuda/element.cuh"

namespace convnorm::cuda {

// How y is written, and what it takes.
enum class Store : int {
  kVectors,   // one sample per tile, every row of y starts on a sector of 32 bytes
  kStaged,    // through shared memory
  kElements,  // for rows that would start on sectors if y itself did, and for channels last
};

inline Store store_of(const void* y, bool staged) {
  const bool aligned = reinterpret_cast<uintptr_t>(y) % 32 == 0;
  return staged ? Store::kStaged : aligned ? Store::kVectors : Store::kElements;
}

// Where a warpgroup's block goes.
struct Destination {
  void* y;
  int64_t n, channels, l_out;  // of y
  int first_channel;           // of the block's row 0
  Columns columns;
  bool channels_last;

  __device__ __forceinline__ int64_t index(int64_t sample, int64_t channel, int64_t position) const {
    return (sample * channels + channel) * l_out + position;
  }
};

template <class Element>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  uint32_t bits;
  if constexpr (sizeof(Element) == 2) {
    const Element pair[2] = {from_float<Element>(low), from_float<Element>(high)};
    __builtin_memcpy(&bits, pair, 4);
  }
  return bits;
}

template <>
__device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

template <>
__device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// A row of kTiles column tiles, (t, e) -> value(2 * t + e), as the quad holds it; `row` starts on a sector, and `end`
// columns of it, a whole number of vectors, are outputs.
template <class Element, int kTiles, class Value>
__device__ __forceinline__ void store_row(const Value& value, int quad, Element* row, int end) {
  if constexpr (sizeof(Element) == 4) {
    // Neighbouring lanes exchange halves of two tiles: a lane then holds four columns.
    const bool odd = quad & 1;
    const int first = 8 * odd + 4 * (quad >> 1);  // this lane's column of the first two tiles
    Element* const to = row + first;
    end -= first;
#pragma unroll
    for (int t = 0; t < kTiles; t += 2) {
      const float a0 = value(2 * t), a1 = value(2 * t + 1), b0 = value(2 * t + 2), b1 = value(2 * t + 3);
      const float r0 = __shfl_xor_sync(~0u, odd ? a0 : b0, 1), r1 = __shfl_xor_sync(~0u, odd ? a1 : b1, 1);
      const float4 four = odd ? make_float4(r0, r1, b0, b1) : make_float4(a0, a1, r0, r1);
      if (8 * t < end) *reinterpret_cast<float4*>(to + 8 * t) = four;
    }
  } else {
    // A 4 x 4 transposition over the quad: a lane then holds the eight columns of one tile.
    const bool odd = quad & 1, upper = quad & 2;
    Element* const to = row + 8 * quad;
    end -= 8 * quad;
#pragma unroll
    for (int t = 0; t < kTiles; t += 4) {
      uint32_t pair[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) pair[u] = pack_pair<Element>(value(2 * (t + u)), value(2 * (t + u) + 1));
      const uint32_t r0 = __shfl_xor_sync(~0u, odd ? pair[0] : pair[1], 1);
      const uint32_t r1 = __shfl_xor_sync(~0u, odd ? pair[2] : pair[3], 1);
      if (odd) {
        pair[0] = r0, pair[2] = r1;
      } else {
        pair[1] = r0, pair[3] = r1;
      }
      const uint32_t r2 = __shfl_xor_sync(~0u, upper ? pair[0] : pair[2], 2);
      const uint32_t r3 = __shfl_xor_sync(~0u, upper ? pair[1] : pair[3], 2);
      if (upper) {
        pair[0] = r2, pair[1] = r3;
      } else {
        pair[2] = r2, pair[3] = r3;
      }
      const uint4 eight = make_uint4(pair[0], pair[1], pair[2], pair[3]);
      if (8 * t < end) __stcs(reinterpret_cast<uint4*>(to + 8 * t), eight);
    }
  }
}

// A row of column tiles by eight bytes, on which it starts; `end` columns of it, of fp32 an even number and of 16 bits
// a multiple of four, are outputs.
template <class Element, int kTiles, class Value>
__device__ __forceinline__ void store_pairs(const Value& value, int quad, Element* row, int end) {
  if constexpr (sizeof(Element) == 4) {
    Element* const to = row + 2 * quad;
    end -= 2 * quad;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (8 * t < end) __stcs(reinterpret_cast<float2*>(to + 8 * t), make_float2(value(2 * t), value(2 * t + 1)));
    }
  } else {
    // Neighbouring lanes exchange halves of two tiles: a lane then holds four columns.
    static_assert(kTiles % 2 == 0);
    const bool odd = quad & 1;
    const int first = 8 * odd + 4 * (quad >> 1);
    Element* const to = row + first;
    end -= first;
#pragma unroll
    for (int t = 0; t < kTiles; t += 2) {
      const uint32_t a = pack_pair<Element>(value(2 * t), value(2 * t + 1)),
                     b = pack_pair<Element>(value(2 * t + 2), value(2 * t + 3));
      const uint32_t other = __shfl_xor_sync(~0u, odd ? a : b, 1);
      const uint2 four = odd ? make_uint2(other, b) : make_uint2(a, other);
      if (8 * t < end) __stcs(reinterpret_cast<uint2*>(to + 8 * t), four);
    }
  }
}

// Row h of kTiles column tiles, the first of which is `first_tile` of the CTA's tile.
template <class Element, int kTiles>
__device__ __forceinline__ void store_tiles(const float (&v)[2 * kTiles], const Fragment& at, int h, int first_tile,
                                            const Destination& to) {
  int channel = to.first_channel + at.row + 8 * h;
  asm volatile("" : "+r"(channel));  // computing addresses anew is cheaper than keeping them
  const int64_t position = to.columns.first_position + 8 * first_tile;
  const int64_t left = channel < to.channels ? to.l_out - position : 0;
  store_row<Element, kTiles>([&](int i) { return v[i]; }, at.quad,
                             static_cast<Element*>(to.y) + to.index(to.columns.first_sample, channel, position),
                             static_cast<int>(left < 8 * kTiles ? left : 8 * kTiles));
}

// Elements [begin, end) from shared to global memory, both aligned at element 0; whole vectors where they are whole.
// Vectors lane, lane + lanes, ... are this lane's.
template <class Element>
__device__ __forceinline__ void copy_vectors(Element* destination, const Element* source, int begin, int end, int lane,
                                             int lanes) {
  constexpr int kVector = 16 / sizeof(Element);
  for (int first = kVector * lane; first < end; first += kVector * lanes) {
    if (first >= begin && first + kVector <= end) {
      *reinterpret_cast<uint4*>(destination + first) = *reinterpret_cast<const uint4*>(source + first);
    } else {
      for (int i = max(first, begin); i < min(first + kVector, end); ++i) destination[i] = source[i];
    }
  }
}

// Elements by which an address lies past the start of its sector.
template <class Element>
__device__ __forceinline__ int sector_offset(const Element* pointer) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(pointer) % 32 / sizeof(Element));
}

// Row h of four column tiles, an element at a time, wherever y lies and whatever its layout. Channels last, the eight
// rows of a warp's store are eight neighbours, in fp32 a sector.
template <class Element>
__device__ __forceinline__ void store_elements(const float (&v)[8], const Fragment& at, int h, int first_tile,
                                               const Destination& to) {
  int channel = to.first_channel + at.row + 8 * h;
  asm volatile("" : "+r"(channel));
  if (channel >= to.channels) return;
  const Columns& columns = to.columns;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int column = at.column(first_tile + i / 2, i % 2);
    const int64_t sample = columns.first_sample + columns.sample(column);
    const int64_t position = columns.first_position + columns.position(column);
    if (sample >= to.n || position >= to.l_out) continue;
    const int64_t index =
        to.channels_last ? (sample * to.l_out + position) * to.channels + channel : to.index(sample, channel, position);
    static_cast<Element*>(to.y)[index] = from_float<Element>(v[i]);
  }
}

// Any number of samples per tile and any alignment: put() takes row h of four column tiles, in order of h and tiles.
// `staging` belongs to this warp: 8 rows of the tile at a time.
template <class Element, int kTiles8>
class StagedRows {
 public:
  __device__ __forceinline__ StagedRows(const Destination& to, const Fragment& at, int lane, Element* staging)
      : to_(to), at_(at), lane_(lane), staging_(staging), y_(static_cast<Element*>(to.y)) {
    const int stride = 8 * static_cast<int>(to.l_out) + kSector;
    sample_stride_ = (stride + kVector - 1) / kVector * kVector;
  }

  __device__ __forceinline__ void put(const float (&v)[8], int h, int first_tile) {
    if (to_.columns.samples_log2 == 0) {
      put_row(v, h, first_tile);
    } else {
      put_samples(v, h, first_tile);
    }
  }

 private:
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kSector = 32 / sizeof(Element);

  // A row's elements stand at their offset within the sector. Whole sectors leave at once; what is left of the last one
  // moves to the front and waits for the next columns.
  __device__ __forceinline__ void put_row(const float (&v)[8], int h, int first_tile) {
    int channel = to_.first_channel + at_.row + 8 * h;
    asm volatile("" : "+r"(channel));
    Element* row = y_ + to_.index(to_.columns.first_sample, channel, to_.columns.first_position);
    const int offset = sector_offset(row);
    Element* staged = staging_ + lane_ / 4 * (32 + kSector);
#pragma unroll
    for (int i = 0; i < 8; ++i) staged[offset + at_.column(i / 2, i % 2)] = from_float<Element>(v[i]);
    __syncwarp();
    const int64_t left = to_.l_out - to_.columns.first_position - 8 * first_tile;  // columns
    const int most = min(8 * (kTiles8 - first_tile), 32);                          // of the tile
    const bool last = first_tile + 4 >= kTiles8 || left <= 32;
    const int begin = first_tile == 0 ? offset : 0;
    const int end = last ? offset + static_cast<int>(left < most ? left : most) : 32;
    Element* sectors = row - offset + 8 * first_tile;
    if (channel < to_.channels && left > 0) copy_vectors(sectors, staged, begin, end, at_.quad, 4);
    __syncwarp();
    if (at_.quad < 2) {
      const uint4 rest = *reinterpret_cast<const uint4*>(staged + 32 + kVector * at_.quad);
      *reinterpret_cast<uint4*>(staged + kVector * at_.quad) = rest;
    }
    __syncwarp();
  }

  // The eight rows of a sample lie one behind the other in y: one stretch, written when it is complete.
  __device__ __forceinline__ void put_samples(const float (&v)[8], int h, int first_tile) {
    const Columns& columns = to_.columns;
    const auto l_out = static_cast<int>(to_.l_out);
    int channel = to_.first_channel + at_.row - lane_ / 4 + 8 * h;  // of the first row
    asm volatile("" : "+r"(channel));  // computing addresses anew is cheaper than keeping them
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = at_.column(first_tile + i / 2, i % 2);
      const int sample = columns.sample(column), position = columns.position(column);
      Element* staged = staging_ + sample * sample_stride_ + offset_of(sample, channel) + lane_ / 4 * l_out;
      if (position < l_out) staged[position] = from_float<Element>(v[i]);
      const int later = columns.position(column + 16);
      if (later < l_out) staged[later] = from_float<Element>(v[i + 4]);
    }
    if (first_tile + 4 < kTiles8) return;
    __syncwarp();
    const int lanes = 32 >> columns.samples_log2, sample = lane_ / lanes;
    const int64_t rows = to_.channels - channel;
    if (columns.first_sample + sample < to_.n && rows > 0) {
      Element* first = y_ + to_.index(columns.first_sample + sample, channel, 0);
      const int offset = offset_of(sample, channel);
      copy_vectors(first - offset, staging_ + sample * sample_stride_, offset,
                   offset + static_cast<int>(rows < 8 ? rows : 8) * l_out, lane_ % lanes, lanes);
    }
    __syncwarp();
  }

  // Of a row within its sector; low bits suffice.
  __device__ __forceinline__ int offset_of(int sample, int channel) const {
    const uint32_t row = (to_.columns.first_sample + sample) * static_cast<uint32_t>(to_.channels) + channel;
    const auto y = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(y_) / sizeof(Element));
    return static_cast<int>((y + row * static_cast<uint32_t>(to_.l_out)) % kSector);
  }

  const Destination& to_;
  const Fragment& at_;
  const int lane_;
  Element* const staging_;
  Element* const y_;
  int sample_stride_;
};

}  // namespace convnorm::cuda
