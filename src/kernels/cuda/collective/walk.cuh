// The tiles of a CTA, one after the other; every role walks the same way. The grid is (columns, teams, rows) of tiles.
#pragma once

#include "kernels/cuda/collective/tiles.hpp"
#include "kernels/cuda/epilogue.cuh"

namespace convnorm::cuda {

struct Walk {
  int iteration = -1;  // domains that the team has begun
  int row_tile = 0, column_tile = 0;
  int first_row_tile = 0;  // of the domain
  int first_sample = 0, first_position = 0;

  __device__ __forceinline__ explicit Walk(const Tiles& tiles) : c_(tiles) {}

  // False when the team has no further domain.
  __device__ __forceinline__ bool next() {
    while (true) {
      ++iteration;
      const int domain = static_cast<int>(blockIdx.y) + iteration * c_.teams;
      if (domain >= c_.domains) return false;
      int columns = static_cast<int>(c_.row_domains.divide(domain));
      first_row_tile = (domain - columns * static_cast<int>(c_.row_domains.value)) * c_.domain_row_tiles;
      row_tile = first_row_tile + static_cast<int>(blockIdx.z);
      column_tile = static_cast<int>(blockIdx.x);
      if (c_.domain_column_tiles != c_.column_tiles) {  // without a norm every column of tiles is a domain
        const auto rows = static_cast<int>(c_.column_tile_divisor.divide(columns));
        column_tile = columns - rows * c_.column_tiles;
        columns = rows;
      }
      first_sample = columns << c_.samples_log2;
      first_position = column_tile * c_.tile_positions;
      if (row_tile < c_.row_tiles) return true;  // the last domain along channels may need fewer tiles
    }
  }

 protected:
  const Tiles& c_;
};

// How the kernel with traits T walks.
template <class T>
struct WalkOf {
  using Type = Walk;
};
template <class T>
requires requires { typename T::Walk; }
struct WalkOf<T> {
  using Type = typename T::Walk;
};

// Outputs of sample n, of which there are none past the last one. 32 bits hold them, and a 64-bit division is a
// function call.
__device__ __forceinline__ int outputs_of_sample(const Arguments& a, int n) {
  if (n >= a.n) return 0;
  const auto outputs = static_cast<int>(a.l_out);
  if (a.lengths == nullptr) return outputs;
  const int64_t room = sample_length(a, n) + a.pad_left + a.pad_right - (a.dilation * (a.k - 1) + 1);
  if (room < 0) return 0;
  return min(outputs, static_cast<int>(static_cast<uint32_t>(room) / static_cast<uint32_t>(a.stride)) + 1);
}

}  // namespace convnorm::cuda
