// The tiles of a CTA: of each of its domains those that it holds, side by side. The grid is (columns of CTAs, teams,
// rows of tiles).
#pragma once

#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/sm90_in_turn/config.hpp"

namespace convnorm::cuda::sm90_in_turn {

// Tiles of a domain in this CTA.
__device__ __forceinline__ int held_tiles(const Config& c) {
  return min(c.held, c.column_tiles - static_cast<int>(blockIdx.x) * c.held);
}

// Where the CTA's tile `number` lies. It follows from the number alone: beside two blocks' accumulators there are no
// registers to keep it.
struct TurnWalk : Walk {
  int place;  // among the tiles of its domain that the CTA holds

  // Before the first tile.
  __device__ __forceinline__ explicit TurnWalk(const Config& c) : Walk(c), place(0), held_(c.held) {}
  __device__ __forceinline__ TurnWalk(const Config& c, int number) : TurnWalk(c) { go_to(number); }

  // Of a domain.
  __device__ __forceinline__ int tiles() const { return min(held_, c_.column_tiles - first_column()); }
  __device__ __forceinline__ bool is_last() const { return place + 1 == tiles(); }

  // `iteration`, for places that come round again.
  __device__ __forceinline__ unsigned round() const { return static_cast<unsigned>(iteration); }

  // False past the last tile.
  __device__ __forceinline__ bool next() { return go_to(number_ + 1); }
  __device__ __forceinline__ bool go_to(int number) {
    number_ = number;
    static_assert(kTurns == 3);
    const int each = tiles();
    const auto from_0 = static_cast<unsigned>(number);
    iteration = static_cast<int>(each == 1 ? from_0 : each == 2 ? from_0 / 2 : from_0 / 3);
    const int domain = static_cast<int>(blockIdx.y) + iteration * c_.teams;
    if (domain >= c_.domains) return false;
    place = number - iteration * each;
    first_sample = static_cast<int>(c_.row_domains.divide(domain));
    first_row_tile = (domain - first_sample * static_cast<int>(c_.row_domains.value)) * c_.domain_row_tiles;
    row_tile = first_row_tile + static_cast<int>(blockIdx.z);
    column_tile = first_column() + place;
    first_position = column_tile * c_.tile_positions;
    return true;
  }

 private:
  __device__ __forceinline__ int first_column() const { return static_cast<int>(blockIdx.x) * held_; }

  int number_ = -1, held_;
};

}  // namespace convnorm::cuda::sm90_in_turn
