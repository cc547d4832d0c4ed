// Which columns a square of products belongs to.
#pragma once

#include "kernels/cuda/moments/config.hpp"

namespace convnorm::cuda::moments {

// Rows and columns of all squares, in units of kSide, in shared memory: finding them takes a search.
class Squares {
 public:
  // By all threads of the CTA; complete after the next barrier.
  __device__ __forceinline__ void fill(int columns) {
    const int along = squares_along(columns), count = squares(columns);
    for (int square = static_cast<int>(threadIdx.x); square < count; square += static_cast<int>(blockDim.x)) {
      int column = square, row = 0;
      while (column >= along - row) column -= along - row, ++row;
      places_[square] = make_uchar2(static_cast<unsigned char>(row), static_cast<unsigned char>(row + column));
    }
  }

  __device__ __forceinline__ int row(int square) const { return places_[square].x; }
  __device__ __forceinline__ int column(int square) const { return places_[square].y; }

 private:
  uchar2 places_[kMostSquares];
};

}  // namespace convnorm::cuda::moments
