// y = post(GroupNorm(pre(conv1d(x, w) + b))) with z in registers from the first product to the store, on the tensor cores
// of any GPU from sm_80 on.
//
// A CTA is four warps, each of which computes 32 channels, 16 of either block, by all columns of the tile. A warp's weights
// are its own: they come from global memory straight into registers, packed in the order of the fragments, one step ahead.
// x is shared: while the products of one chunk run, the next one is loaded, split and written to the other slot, from where
// ldmatrix, whose row addresses are free, takes every tap. What a CTA waits for, the others of its SM compute through.
#pragma once

#include "kernels/cuda/collective/block_epilogue.cuh"
#include "kernels/cuda/collective/warp_epilogue.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/sm80_onchip/traits.cuh"
#include "kernels/cuda/sm80_onchip/x_stream.cuh"

namespace convnorm::cuda::sm80_onchip {

// The weights of one step in a warp.
template <class T>
struct Fragments {
  uint4 of[kRowTiles][T::kChunkK16][T::kParts];
};

// Where a warp's weights come from, step after step: [k16][part][lane][8] of 16 bits for either row tile.
template <class T>
class WeightStream {
 public:
  __device__ __forceinline__ WeightStream(const Parameters& p, int row_tile, int warp) {
    const Config& c = p.config;
    const int64_t piece = int64_t{c.chunks} * static_cast<int>(p.arguments.k) * kStep;  // vectors of 16 rows
    const int block = c.block_of(row_tile, 0);
    next_ = static_cast<const uint4*>(p.arguments.packed_weight()) + (4 * block + warp) * piece + threadIdx.x % 32;
    row_tile_ = 4 * (c.block_of(row_tile, 1) - block) * piece;
  }

  __device__ __forceinline__ void load(Fragments<T>& a) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int k16 = 0; k16 < T::kChunkK16; ++k16) {
#pragma unroll
        for (int part = 0; part < T::kParts; ++part) {
          a.of[i][k16][part] = ptx::load_once(next_ + i * row_tile_ + (k16 * T::kParts + part) * kStepVectors);
        }
      }
    }
    next_ += kStep;
  }

 private:
  static constexpr int kStep = T::kChunkK16 * T::kParts * kStepVectors;

  const uint4* next_;
  int64_t row_tile_;  // from one row tile to the next
};

template <class T>
using Accumulators = float[kRowTiles][T::kAccumulators];

// The products of a step. `row`: shared address of the row of this lane's matrix in the first column tile.
template <class T>
__device__ __forceinline__ void multiply(Accumulators<T>& d, const Fragments<T>& a, uint32_t row, int rows,
                                         int part_bytes) {
  constexpr int kPairs = T::kTiles8 / 2;  // of column tiles, for which one ldmatrix has the operands
  constexpr int kLoads = T::kChunkK16 * kPairs;
  uint32_t b[2][T::kParts][4];
  const auto load = [&](int i) {
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
      ptx::ldmatrix(b[i % 2][part], row + i / kPairs * (2 * 16) * rows + part * part_bytes + i % kPairs * (2 * 8 * 16));
    }
  };
  load(0);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (i + 1 < kLoads) load(i + 1);
    // Neighbouring instructions add to different accumulators, so that none waits for the one before.
#pragma unroll
    for (int sum = 0; sum < T::kParts; ++sum) {
#pragma unroll
      for (int part = 0; part <= sum; ++part) {
#pragma unroll
        for (int j = 0; j < 2 * kRowTiles; ++j) {
          const int row_tile = j / 2, column_tile = i % kPairs * 2 + j % 2;
          auto& sums = reinterpret_cast<float(&)[4]>(d[row_tile][4 * column_tile]);
          ptx::mma<typename T::Operand>(sums, a.of[row_tile][i / kPairs][sum - part], b[i % 2][part][j % 2 * 2],
                                        b[i % 2][part][j % 2 * 2 + 1]);
        }
      }
    }
  }
}

// z of a tile, whose first chunk is in shared memory; that of the next tile is there afterwards. `slot_row`: shared address
// of the row of this lane's matrix in slot 0; `slot_bytes`: from there to the slot of the first chunk.
template <class T>
__device__ __forceinline__ void convolve(const Parameters& p, const Walk& walk, int warp, XStream<T>& x,
                                         uint32_t slot_row, int& slot_bytes, Accumulators<T>& d) {
  const Config& c = p.config;
  const auto taps = static_cast<int>(p.arguments.k), stride = static_cast<int>(p.arguments.stride);
  const int rows = c.rows();
  WeightStream<T> weights(p, walk.row_tile, warp);
  Fragments<T> next;
  weights.load(next);
#pragma unroll 1
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    x.advance();
    int shift = 0, phase = 0;
#pragma unroll 1
    for (int tap = 0; tap < taps; ++tap) {
      const Fragments<T> a = next;
      if (chunk + 1 < c.chunks || tap + 1 < taps) weights.load(next);
      if (tap < c.rounds) x.load(tap);
      multiply<T>(d, a, slot_row + slot_bytes + 16 * (shift + phase * c.phase_rows), rows, p.plan.x_part_bytes);
      if (tap < c.rounds) x.store(tap);
      shift += c.tap_shift;
      phase += c.tap_phase;
      if (phase >= stride) phase -= stride, shift += c.samples;
    }
#pragma unroll 1
    for (int round = taps; round < c.rounds; ++round) {
      x.load(round);
      x.store(round);
    }
    slot_bytes = p.plan.x_slot_bytes - slot_bytes;
    __syncthreads();
  }
}

// Row tile 0 has the values of a glu, row tile 1 their gates.
template <class T>
__device__ __forceinline__ void finish_gated(const Parameters& p, unsigned char* shared, const Walk& walk, int warp,
                                             Accumulators<T>& d) {
#pragma unroll 1
  for (int i = kRowTiles; i-- > 0;) {
    Epilogue<T> epilogue(p, shared, 4 * i + warp);
    epilogue.place(walk);
    epilogue.gather(walk);
    if (i == 0) epilogue.finish_gated(walk, d[0], d[1]);
  }
}

__device__ __forceinline__ void swap(float& a, float& b) {
  const float c = a;
  a = b, b = c;
}

template <class T>
__global__ void __launch_bounds__(kThreads, T::kCtasPerSm) onchip(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  using TileEpilogue = std::conditional_t<T::kByWarps, WarpEpilogue<T>, Epilogue<T>>;
  const Config& c = p.config;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = threadIdx.x % 32;

  XStream<T> x(p, shared);
  x.begin();
  if (c.exchanges() && threadIdx.x == 0) {
    *reinterpret_cast<uint64_t*>(shared + p.plan.first_tag) =
        first_tag_of_launch(p.slot.header, c.ctas(), c.iterations);
  }
  const float initial = packed_fault(p.arguments);
  // Matrices 0 and 1 of an ldmatrix are the two halves of k of one column tile, 2 and 3 those of the next.
  const uint32_t slot_row = ptx::shared_address(shared) + p.plan.x +
                            16 * ((lane / 8 % 2) * c.rows() + lane / 16 * 8 + lane % 8);
  int slot_bytes = 0;
  for (Walk walk(c); walk.next();) {
#pragma unroll 1
    for (int i = 0; i < kRowTiles; ++i) {
      TileEpilogue epilogue(p, shared, 4 * i + warp);
      epilogue.request(walk);
      epilogue.keep();
    }
    __syncthreads();  // the first chunk of x and the launch's number are there
    Accumulators<T> d;
#pragma unroll
    for (int i = 0; i < T::kAccumulators; ++i) d[0][i] = d[1][i] = initial;
    convolve<T>(p, walk, warp, x, slot_row, slot_bytes, d);
    // One row tile after the other; the other one then takes its place, so that the code exists once.
#pragma unroll 1
    for (int i = 0; i < kRowTiles; ++i) {
      TileEpilogue epilogue(p, shared, 4 * i + warp);
      epilogue.place(walk);
      epilogue.measure(walk, d[0]);
#pragma unroll
      for (int j = 0; j < T::kAccumulators; ++j) swap(d[0][j], d[1][j]);
    }
    if constexpr (!T::kByWarps) {
      if (c.halves) {
        finish_gated<T>(p, shared, walk, warp, d);
        continue;
      }
    }
#pragma unroll 1
    for (int i = 0; i < kRowTiles; ++i) {
      TileEpilogue epilogue(p, shared, 4 * i + warp);
      epilogue.place(walk);
      epilogue.gather(walk);
      epilogue.finish(walk, d[0]);
#pragma unroll
      for (int j = 0; j < T::kAccumulators; ++j) swap(d[0][j], d[1][j]);
    }
  }
}

}  // namespace convnorm::cuda::sm80_onchip
