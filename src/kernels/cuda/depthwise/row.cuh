// A job's inputs on their way to shared memory, padding written out: place i of a row, counted from the first input of
// the piece's first output, lies at `shift` + i. `shift` is how far y's row lies past the start of a sector, so that
// vectors of y that start on sectors belong to vectors of x that are aligned here.
#pragma once

#include "kernels/cuda/depthwise/config.hpp"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/barrier.cuh"

namespace convnorm::cuda::depthwise {

// A row that is measured while it arrives is requested in parts of so many copies of a lane, and so many parts are on
// their way at a time.
inline constexpr int kCopiesOfPart = 3;
inline constexpr int kPartsAhead = 4;

// The places of a row that are copied by 16 bytes.
template <class Element>
struct RowCopy {
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kStep = 32 * kVector;           // elements from one copy of a lane to its next
  static constexpr int kPart = kCopiesOfPart * kStep;  // elements

  const Element* source = nullptr;  // of place 0
  uint32_t target = 0;              // of place 0
  int next = kPartsAhead * kPart;   // place where the next part starts
  int end = 0;                      // 0: all is requested, and there are no parts

  __device__ __forceinline__ void request_part(int lane, uint64_t policy) {
    const int first = next + kVector * lane;
#pragma unroll
    for (int i = 0; i < kCopiesOfPart; ++i) {
      const int at = first + i * kStep;
      if (at < end) ptx::copy_async(target + at * static_cast<int>(sizeof(Element)), source + at, policy);
    }
    next += kPart;
  }

  // Places that have come when the last kPartsAhead parts may still be on their way.
  __device__ __forceinline__ int there() const { return next - kPartsAhead * kPart; }
};

// Requests a row, its weights and its padding, which are complete after ptx::wait_copies and __syncwarp. `input` is the
// channel of x, `policy` how the second-level cache keeps it. With `in_parts`, and where addresses allow copies of 16
// bytes, only the first kPartsAhead parts are requested, each a group of copies, and what is left is returned.
template <class Element>
__device__ __forceinline__ RowCopy<Element> load_row(const Arguments& a, const Job& job, int input, const float* weight,
                                                     Element* row, float* weight_row, int lane, bool in_parts,
                                                     uint64_t policy) {
  const int taps = static_cast<int>(a.k), stride = static_cast<int>(a.stride);
  const auto* x = static_cast<const Element*>(a.x) + (job.n * a.c + input) * a.l;
  const int from = job.first * stride - static_cast<int>(a.pad_left);  // input of place 0
  const int places = (job.positions - 1) * stride + static_cast<int>(a.dilation) * (taps - 1) + 1;
  // Places [begin, end) are inputs as they stand.
  const int begin = min(max(-from, 0), places);
  const int end = max(begin, min(job.length - from, places));
  Element* const placed = row + job.shift;
  const Element* const source = x + from;
  const uint32_t target = ptx::shared_address(placed);
  const auto address = reinterpret_cast<uintptr_t>(source);
  const auto request_weights = [&] {
    for (int k = lane; k < taps; k += 32) {
      ptx::copy_async_or_zeros<4>(ptx::shared_address(weight_row + k), weight + int64_t{job.channel} * taps + k, true);
    }
  };
  RowCopy<Element> left;
  if ((address - target) % 16 == 0) {
    const int head = min(end, begin + static_cast<int>(-(address + begin * sizeof(Element)) % 16 / sizeof(Element)));
    const int tail = max(head, end - static_cast<int>((address + end * sizeof(Element)) % 16 / sizeof(Element)));
    if (in_parts) {
      left = {source, target, head, tail};
#pragma unroll 1
      for (int part = 0; part < kPartsAhead; ++part) {
        left.request_part(lane, policy);
        if (part == 0) request_weights();
        ptx::commit_copies();
      }
    } else {
#pragma unroll 5
      for (int i = head + left.kVector * lane; i < tail; i += left.kStep) {
        ptx::copy_async(target + i * static_cast<int>(sizeof(Element)), source + i, policy);
      }
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
  if (left.end == 0) request_weights();
  if (a.pad == CONVNORM_ZEROS) {
    for (int i = lane; i < begin; i += 32) placed[i] = from_float<Element>(0.0f);
    for (int i = end + lane; i < places; i += 32) placed[i] = from_float<Element>(0.0f);
    return left;
  }
  const auto put_padding = [&](int i) {
    const int64_t at = input_position(a, from + i, job.length);
    placed[i] = at >= 0 ? x[at] : from_float<Element>(0.0f);
  };
  for (int i = lane; i < begin; i += 32) put_padding(i);
  for (int i = end + lane; i < places; i += 32) put_padding(i);
  return left;
}

}  // namespace convnorm::cuda::depthwise
