// y = post(GroupNorm(pre(conv1d(x, w) + b))) with z in registers from the first product to the store, on the tensor
// cores of any GPU from sm_80 on.
//
// A CTA is four warps, each of which computes 32 channels, 16 of either block, by all columns of the tile. A warp's
// weights are its own: asynchronous copies bring them, packed in the order of the fragments, two or three steps ahead.
// x is shared: while the products of one chunk run, the next one is loaded, split and written to the other slot, from
// where ldmatrix, whose row addresses are free, takes every tap. What a CTA waits for, the others of its SM compute
// through.
#pragma once

#include "kernels/cuda/collective/block_epilogue.cuh"
#include "kernels/cuda/collective/row_parameters.cuh"
#include "kernels/cuda/collective/warp_epilogue.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/sm80_onchip/traits.cuh"
#include "kernels/cuda/sm80_onchip/x_stream.cuh"

namespace convnorm::cuda::sm80_onchip {

// The weights of one step in a warp.
template <class T>
struct Fragments {
  uint4 of[kRowTiles][T::kChunkK16][T::kParts];
};

// A warp's weights on their way to it, step after step: [k16][part][lane][8] of 16 bits for either row tile. A lane
// copies into its own places of shared memory what it will take, so that nobody else need wait, and no register is
// held.
template <class T>
class WeightStream {
 public:
  __device__ __forceinline__ WeightStream(const Parameters& p, uint32_t shared, int warp)
      : p_(p),
        c_(p.config),
        warp_(warp),
        place_(shared + p.plan.weights + warp * kWarpStageBytes + threadIdx.x % 32 * 16) {}

  // Requests the first steps of a tile.
  __device__ __forceinline__ void begin(int row_tile) {
    left_ = c_.chunks * static_cast<int>(p_.arguments.k);
    const int64_t piece = int64_t{left_} * kStep;  // vectors of 16 rows
    const int block = c_.block_of(row_tile, 0);
    next_ = static_cast<const uint4*>(p_.arguments.packed_weight()) + (4 * block + warp_) * piece + threadIdx.x % 32;
    row_tile_ = 4 * (c_.block_of(row_tile, 1) - block) * piece;
    stage_ = 0;
#pragma unroll 1
    for (int stage = 0; stage < c_.weight_stages; ++stage) {
      request(stage);
    }
  }

  // Waits for the step that was requested first, whose stage then takes the next one.
  __device__ __forceinline__ void take(Fragments<T>& a) {
    if (c_.weight_stages == 3) {
      ptx::wait_copies<2>();
    } else {
      ptx::wait_copies<1>();
    }
    each([&](int i, int k16, int part, int vector) {
      a.of[i][k16][part] = ptx::load_shared(place_ + stage_ * kStageBytes + vector * kStepVectors * 16);
    });
    request(stage_);
    stage_ = stage_ + 1 == c_.weight_stages ? 0 : stage_ + 1;
  }

 private:
  static constexpr int kStep = T::kChunkK16 * T::kParts * kStepVectors;  // vectors of a row tile
  static constexpr int kWarpStageBytes = warp_stage_bytes(T::kParts), kStageBytes = kThreads / 32 * kWarpStageBytes;

  template <class Body>
  static __device__ __forceinline__ void each(const Body& body) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int k16 = 0; k16 < T::kChunkK16; ++k16) {
#pragma unroll
        for (int part = 0; part < T::kParts; ++part) {
          body(i, k16, part, (i * T::kChunkK16 + k16) * T::kParts + part);
        }
      }
    }
  }

  __device__ __forceinline__ void request(int stage) {
    if (left_ > 0) {
      each([&](int i, int k16, int part, int vector) {
        ptx::copy_async(place_ + stage * kStageBytes + vector * kStepVectors * 16,
                        next_ + i * row_tile_ + (k16 * T::kParts + part) * kStepVectors);
      });
      next_ += kStep;
      --left_;
    }
    ptx::commit_copies();  // even if empty: steps are counted by groups
  }

  const Parameters& p_;
  const Config& c_;
  const int warp_;
  const uint32_t place_;  // this lane's in stage 0
  const uint4* next_;
  int64_t row_tile_;  // from one row tile to the next
  int left_;          // steps from next_ on
  int stage_;
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

// z of a tile, whose first chunk is in shared memory and whose first weights are on their way; the first chunk of the
// next tile is there afterwards. `slot_row`: shared address of the row of this lane's matrix in slot 0; `slot_bytes`:
// from there to the slot of the first chunk.
template <class T>
__device__ __forceinline__ void convolve(const Parameters& p, WeightStream<T>& weights, XStream<T>& x,
                                         uint32_t slot_row, int& slot_bytes, Accumulators<T>& d) {
  const Config& c = p.config;
  const auto taps = static_cast<int>(p.arguments.k), stride = static_cast<int>(p.arguments.stride);
  const int rows = c.rows();
#pragma unroll 1
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    x.advance();
    int shift = 0, phase = 0;
#pragma unroll 1
    for (int tap = 0; tap < taps; ++tap) {
      Fragments<T> a;
      weights.take(a);  // first, for the products wait for it
      // The branch keeps the compiler from moving the loads to where they are used.
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

  // All that comes from afar is asked for before any of it is waited for.
  Walk walk(c);
  bool any = walk.next();
  WeightStream<T> weights(p, ptx::shared_address(shared), warp);
  if (any) weights.begin(walk.row_tile);
  const int block = c.block_of(walk.row_tile, static_cast<int>(threadIdx.x) / kBlockRows);
  const RequestedRow<T> own_row(p, block * kBlockRows + static_cast<int>(threadIdx.x) % kBlockRows);
  const bool numbers = c.exchanges() && threadIdx.x == kThreads - 1;
  uint64_t tag = 0;
  if (numbers) tag = ptx::load_relaxed(&p.slot.header->tag);
  XStream<T> x(p, shared);
  x.begin();
  row_parameters(p, shared)[threadIdx.x] = own_row.value();
  if (numbers) {
    *reinterpret_cast<uint64_t*>(shared + p.plan.first_tag) =
        first_tag_of_launch(p.slot.header, tag, c.ctas(), c.iterations);
  }
  // Matrices 0 and 1 of an ldmatrix are the two halves of k of one column tile, 2 and 3 those of the next.
  const uint32_t slot_row =
      ptx::shared_address(shared) + p.plan.x + 16 * ((lane / 8 % 2) * c.rows() + lane / 16 * 8 + lane % 8);
  int slot_bytes = 0;
  TileEpilogue upper(p, shared, warp), lower(p, shared, 4 + warp);  // of the two row tiles
  for (int tile = 0; any; any = walk.next(), ++tile) {
    if (tile > 0) weights.begin(walk.row_tile);
    upper.begin(walk, tile > 0);
    lower.begin(walk, tile > 0);
    __syncthreads();  // the first chunk of x, parameters and the launch's number are there
    Accumulators<T> d = {};
    convolve<T>(p, weights, x, slot_row, slot_bytes, d);
    if constexpr (T::kByWarps) {
      upper.measure(walk, d[0]);
      lower.measure(walk, d[1]);
    } else {
      // Code that runs once takes as long as it takes to fetch it: here it exists once, and the row tiles change
      // places.
#pragma unroll 1
      for (int i = 0; i < kRowTiles; ++i) {
        TileEpilogue epilogue(p, shared, 4 * i + warp);
        epilogue.place(walk);
        epilogue.measure(walk, d[0]);
#pragma unroll
        for (int j = 0; j < T::kAccumulators; ++j) swap(d[0][j], d[1][j]);
      }
    }
    if constexpr (T::kByWarps) {
      const bool two = upper.gathers_two();
#pragma unroll 1
      for (int i = 0; i < (two ? 1 : kRowTiles); ++i) {
        TileEpilogue epilogue(p, shared, 4 * i + warp);
        epilogue.place(walk);
        two ? epilogue.gather_two(walk) : epilogue.gather(walk);
      }
    } else if (c.halves) {
      finish_gated<T>(p, shared, walk, warp, d);
      continue;
    }
    // One row tile after the other; the second one then takes the place of the first, so that the code exists once.
#pragma unroll 1
    for (int i = 0; i < kRowTiles; ++i) {
      TileEpilogue epilogue(p, shared, 4 * i + warp);
      epilogue.place(walk);
      if constexpr (!T::kByWarps) epilogue.gather(walk);
      epilogue.finish(walk, d[0]);
#pragma unroll
      for (int j = 0; j < T::kAccumulators; ++j) d[0][j] = d[1][j];
    }
  }
}

}  // namespace convnorm::cuda::sm80_onchip
