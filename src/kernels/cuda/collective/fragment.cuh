// How the accumulators of a 64-row block lie in the threads of a warpgroup, for wgmma and, a warp at a time, mma.sync:
//
//   d[4 * t + 2 * h + e] is row 16 * warp + lane / 4 + 8 * h, column 8 * t + 2 * (lane % 4) + e
//
// A column is (position, sample), samples fastest: column = position * samples + sample, with 1, 2, 4, 8 or 16 samples.
// So the sample of a value depends on e, on the quad lane and, for 16 samples, on the parity of t, and on nothing else:
// the classes (e, parity) below.
#pragma once

namespace convnorm::cuda {

// Named barriers of the hardware, 0 being __syncthreads(): this one + i is for the threads that hold block i of a tile.
inline constexpr int kFirstBlockBarrier = 1;

// The columns of a tile as (position, sample).
struct Columns {
  int first_sample;    // n of sample 0
  int first_position;  // l of position 0
  int samples_log2;

  __device__ __forceinline__ int samples() const { return 1 << samples_log2; }
  __device__ __forceinline__ int sample(int column) const { return column & (samples() - 1); }
  __device__ __forceinline__ int position(int column) const { return column >> samples_log2; }
};

// A thread's place in its warpgroup's 64 rows.
struct Fragment {
  int row;   // of h = 0
  int quad;  // lane % 4

  __device__ __forceinline__ explicit Fragment(int thread_of_warpgroup)
      : row(16 * (thread_of_warpgroup / 32) + thread_of_warpgroup % 32 / 4), quad(thread_of_warpgroup % 4) {}

  __device__ __forceinline__ int column(int t, int e) const { return 8 * t + 2 * quad + e; }
};

}  // namespace convnorm::cuda
