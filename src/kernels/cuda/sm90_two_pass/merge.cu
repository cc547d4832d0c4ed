// Between the passes: moments of the groups' pieces to norms. Means come first, then squares around them, both in
// double and in one order.
#include <algorithm>

#include "kernels/cuda/any_arch/norm.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/sm90_two_pass/launch.hpp"

namespace convnorm::cuda::sm90_two_pass {

namespace {

constexpr int kMostThreads = 1024;

// Over all threads; `shared` has room for a number of each warp.
__device__ double sum_threads(double value, double* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  __syncthreads();  // what was there has been read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += shared[warp];
  return sum;
}

// A CTA takes one group of one sample.
__global__ void __launch_bounds__(kMostThreads)
    merge_kernel(const __grid_constant__ Arguments a, const __grid_constant__ GroupPieces pieces,
                 any_arch::Norm* norms) {
  __shared__ double shared[kMostThreads / 32];
  constexpr int kRows = kBlockRows;
  for (int64_t item = blockIdx.x; item < a.n * a.groups; item += gridDim.x) {
    const int64_t n = item / a.groups;
    const auto group_rows = static_cast<int>(a.o_per_norm_group);
    const int group = static_cast<int>(item - n * a.groups), first_row = group * group_rows;
    const int end_row = first_row + group_rows, first_block = first_row / kRows;
    const int blocks = (end_row - 1) / kRows - first_block + 1;
    const int64_t valid = a.lengths == nullptr ? a.l_out : min(a.l_out, valid_outputs(a, sample_length(a, n)));
    const int segments = static_cast<int>((valid + pieces.columns - 1) / pieces.columns);
    const GroupPieces::Moments* sample = pieces.moments + n * pieces.sample_stride();
    // body(moments, values)
    const auto for_each = [&](const auto& body) {
#pragma unroll 4
      for (int segment = threadIdx.x; segment < segments; segment += blockDim.x) {
        const auto columns = static_cast<int>(min(valid - int64_t{segment} * pieces.columns, int64_t{pieces.columns}));
        for (int block = first_block; block < first_block + blocks; ++block) {
          const int rows = min(end_row, (block + 1) * kRows) - max(first_row, block * kRows);
          const int piece = group - block * kRows / group_rows;
          body(sample[(int64_t{segment} * pieces.blocks + block) * pieces.of_block + piece],
               static_cast<double>(rows) * columns);
        }
      }
    };
    const double values = static_cast<double>(group_rows) * static_cast<double>(valid);
    double mean = 0, variance = 0;
    if (valid > 0) {
      // Distances from one of the means lose nothing where all are large.
      const double base =
          sample[int64_t{first_block} * pieces.of_block + group - first_block * kRows / group_rows].mean;
      double sum = 0, squares = 0;
      for_each([&](const GroupPieces::Moments& m, double count) { sum += count * (m.mean - base); });
      mean = base + sum_threads(sum, shared) / values;
      for_each([&](const GroupPieces::Moments& m, double count) {
        squares += m.m2 + count * (m.mean - mean) * (m.mean - mean);
      });
      variance = sum_threads(squares, shared) / values;
    }
    if (threadIdx.x == 0) norms[item] = any_arch::norm_from(mean, variance, a.eps);
  }
}

}  // namespace

void launch_merge(const Arguments& a, const GroupPieces& pieces, any_arch::Norm* norms, cudaStream_t stream) {
  constexpr int64_t kMostCtas = int64_t{1} << 30;
  const int64_t threads = std::min<int64_t>(quotient_up(quotient_up(pieces.segments, 4), 32) * 32, kMostThreads);
  launch("sm90_two_pass merge", merge_kernel,
         {.grid = dim3(static_cast<unsigned>(std::min(a.n * a.groups, kMostCtas))),
          .block = dim3(static_cast<unsigned>(threads))},
         stream, a, pieces, norms);
}

}  // namespace convnorm::cuda::sm90_two_pass
