// A block's staged rows on their way to y: neighbouring lanes write neighbouring vectors, of as many rows as a warp's
// positions leave them.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/recompute/config.hpp"

namespace convnorm::cuda::recompute {

// A lane's eight values of two rows, as vectors: `place(row, i)` is where value i goes, and those of its vector behind
// it.
template <class Element, class Place>
__device__ __forceinline__ void stage_vectors(const float (&v)[2][8], const Place& place) {
  constexpr int kVector = 16 / sizeof(Element);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
#pragma unroll
    for (int first = 0; first < 8; first += kVector) {
      alignas(16) Element out[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) out[i] = from_float<Element>(v[row][first + i]);
      *reinterpret_cast<uint4*>(place(row, first)) = *reinterpret_cast<const uint4*>(out);
    }
  }
}

template <class Element>
class RowWriter {
 public:
  // `y` and `staged` are those of the block's first row; `apart` is from one row of y to the next, in elements, `pitch`
  // that of staged rows, in bytes.
  __device__ __forceinline__ RowWriter(const Config& c, Element* y, int64_t apart, int end, const Element* staged,
                                       int pitch, bool aligned)
      : end_(end), aligned_(aligned) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int vectors_log2 = __ffs(c.warp_positions() / kVector) - 1;  // of a row, at most one a lane
    first_ = lane >> vectors_log2, at_once_ = 32 >> vectors_log2;
    column_ = (lane & ((1 << vectors_log2) - 1)) * kVector;
    to_ = y + first_ * apart + column_;
    step_ = at_once_ * apart;
    const int staged_apart = pitch / static_cast<int>(sizeof(Element));
    from_ = staged + first_ * staged_apart + column_;
    from_step_ = at_once_ * staged_apart;
  }

  __device__ __forceinline__ void write(int warp_first, int l_out) const {
    const int position = warp_first + column_;
    Element* to = to_ + warp_first;
    const Element* from = from_;
    if (aligned_ && position >= 0 && position + kVector <= l_out) {
#pragma unroll 1
      for (int row = first_; row < end_; row += 2 * at_once_, from += 2 * from_step_, to += 2 * step_) {
        const uint4 first = *reinterpret_cast<const uint4*>(from);
        const uint4 second = *reinterpret_cast<const uint4*>(from + from_step_);
        *reinterpret_cast<uint4*>(to) = first;
        if (row + at_once_ < end_) *reinterpret_cast<uint4*>(to + step_) = second;
      }
    } else {
#pragma unroll 1
      for (int row = first_; row < end_; row += at_once_, to += step_, from += from_step_) {
        for (int j = 0; j < kVector; ++j) {
          if (position + j >= 0 && position + j < l_out) to[j] = from[j];
        }
      }
    }
  }

 private:
  static constexpr int kVector = 16 / sizeof(Element);

  Element* to_;  // y's row of this lane's first vector, before the positions of a tile
  const Element* from_;
  int64_t step_;  // from a row of y to this lane's next
  int from_step_, first_, at_once_, column_, end_;
  bool aligned_;
};

}  // namespace convnorm::cuda::recompute
