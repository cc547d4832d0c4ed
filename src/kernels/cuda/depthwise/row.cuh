// A job's inputs on their way to shared memory, padding written out: place i of a row, counted from the first input of
// the piece's first output, lies at `shift` + i. `shift` is how far y's row lies past the start of a sector, so that
// vectors of y that start on sectors belong to vectors of x that are aligned here.
#pragma once

#include "kernels/cuda/depthwise/config.hpp"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/barrier.cuh"

namespace convnorm::cuda::depthwise {

// The warp's copies are under way on return; they are complete after ptx::wait_copies and __syncwarp. `input` is the
// channel of x, `policy` how the second-level cache keeps it.
template <class Element>
__device__ __forceinline__ void load_row(const Arguments& a, const Job& job, int input, const float* weight,
                                         Element* row, float* weight_row, int lane, uint64_t policy) {
  const int taps = static_cast<int>(a.k), stride = static_cast<int>(a.stride);
  const auto* x = static_cast<const Element*>(a.x) + (job.n * a.c + input) * a.l;
  const int from = job.first * stride - static_cast<int>(a.pad_left);  // input of place 0
  const int places = (job.positions - 1) * stride + static_cast<int>(a.dilation) * (taps - 1) + 1;
  // Places [begin, end) are inputs as they stand.
  const int begin = min(max(-from, 0), places);
  const int end = max(begin, min(job.length - from, places));
  Element* const placed = row + job.shift;
  constexpr int kVector = 16 / sizeof(Element);
  const Element* const source = x + from;
  const uint32_t target = ptx::shared_address(placed);
  const auto address = reinterpret_cast<uintptr_t>(source);
  if ((address - target) % 16 == 0) {
    const int head = min(end, begin + static_cast<int>(-(address + begin * sizeof(Element)) % 16 / sizeof(Element)));
    const int tail = max(head, end - static_cast<int>((address + end * sizeof(Element)) % 16 / sizeof(Element)));
#pragma unroll 5
    for (int i = head + kVector * lane; i < tail; i += kVector * 32) {
      ptx::copy_async(target + i * static_cast<int>(sizeof(Element)), source + i, policy);
    }
    if (lane < head - begin) placed[begin + lane] = source[begin + lane];
    if (lane < end - tail) placed[tail + lane] = source[tail + lane];
  } else if constexpr (sizeof(Element) == 4) {
#pragma unroll 4
    for (int i = begin + lane; i < end; i += 32) ptx::copy_async_or_zeros<4>(target + 4 * i, source + i, true);
  } else {
#pragma unroll 8
    for (int i = begin + lane; i < end; i += 32) placed[i] = source[i];
  }
  for (int k = lane; k < taps; k += 32) {
    ptx::copy_async_or_zeros<4>(ptx::shared_address(weight_row + k), weight + int64_t{job.channel} * taps + k, true);
  }
  if (a.pad == CONVNORM_ZEROS) {
    for (int i = lane; i < begin; i += 32) placed[i] = from_float<Element>(0.0f);
    for (int i = end + lane; i < places; i += 32) placed[i] = from_float<Element>(0.0f);
    return;
  }
  const auto put_padding = [&](int i) {
    const int64_t at = input_position(a, from + i, job.length);
    placed[i] = at >= 0 ? x[at] : from_float<Element>(0.0f);
  };
  for (int i = lane; i < begin; i += 32) put_padding(i);
  for (int i = end + lane; i < places; i += 32) put_padding(i);
}

}  // namespace convnorm::cuda::depthwise
