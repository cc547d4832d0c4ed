// A job's inputs on their way to shared memory, padding written out: place i of a row, counted from the first input of
// the piece's first output, lies at `shift` + i. `shift` is how far y's row lies past the start of a sector, so that
// vectors of y that start on sectors belong to vectors of x that are aligned here.
#pragma once

#include "kernels/cuda/collective/wait.cuh"
#include "kernels/cuda/depthwise/config.hpp"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"

namespace convnorm::cuda::depthwise {

// Where the inputs of a job lie and go to.
template <class Element>
struct RowSource {
  const Element* source;  // of place 0
  Element* placed;        // place 0
  int from;               // input of place 0
  int begin, end;         // places that are inputs as they stand
  int head, tail;         // of these, those that are copied by 16 bytes; none where addresses do not allow it
  int places;
  bool in_vectors;

  // `input` is the channel of x.
  __device__ __forceinline__ RowSource(const Arguments& a, const Job& job, int input, Element* row) {
    const int taps = static_cast<int>(a.k), stride = static_cast<int>(a.stride);
    from = job.first * stride - static_cast<int>(a.pad_left);
    places = (job.positions - 1) * stride + static_cast<int>(a.dilation) * (taps - 1) + 1;
    begin = min(max(-from, 0), places);
    end = max(begin, min(job.length - from, places));
    source = static_cast<const Element*>(a.x) + (job.n * a.c + input) * a.l + from;
    placed = row + job.shift;
    const auto address = reinterpret_cast<uintptr_t>(source);
    in_vectors = (address - ptx::shared_address(placed)) % 16 == 0;
    head = min(end, begin + static_cast<int>(-(address + begin * sizeof(Element)) % 16 / sizeof(Element)));
    tail = max(head, end - static_cast<int>((address + end * sizeof(Element)) % 16 / sizeof(Element)));
    if (!in_vectors) head = tail = begin;
  }

  __device__ __forceinline__ uint32_t target(int place) const { return ptx::shared_address(placed + place); }

  // By one thread: one arrival at the barrier, which completes when what is copied by 16 bytes is there.
  __device__ __forceinline__ void request_in_bulk(uint32_t barrier, uint64_t policy) const {
#if __CUDA_ARCH__ >= 900
    const auto bytes = static_cast<uint32_t>((tail - head) * static_cast<int>(sizeof(Element)));
    ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    if (bytes > 0) ptx::bulk_copy(target(head), source + head, bytes, barrier, policy);
#endif
  }

  // The same by a warp, complete after ptx::wait_copies.
  __device__ __forceinline__ void request_vectors(int lane, uint64_t policy) const {
    constexpr int kVector = 16 / sizeof(Element);
#pragma unroll 5
    for (int i = head + kVector * lane; i < tail; i += 32 * kVector) ptx::copy_async(target(i), source + i, policy);
  }

  // What is not copied by 16 bytes, and the padding; complete after ptx::wait_copies and __syncwarp.
  __device__ __forceinline__ void request_rest(const Arguments& a, const Job& job, int lane) const {
    if (in_vectors) {
      if (lane < head - begin) placed[begin + lane] = source[begin + lane];
      if (lane < end - tail) placed[tail + lane] = source[tail + lane];
    } else if constexpr (sizeof(Element) == 4) {
#pragma unroll 4
      for (int i = begin + lane; i < end; i += 32) ptx::copy_async_or_zeros<4>(target(i), source + i, true);
    } else {
#pragma unroll 8
      for (int i = begin + lane; i < end; i += 32) placed[i] = source[i];
    }
    if (a.pad == CONVNORM_ZEROS) {
      for (int i = lane; i < begin; i += 32) placed[i] = from_float<Element>(0.0f);
      for (int i = end + lane; i < places; i += 32) placed[i] = from_float<Element>(0.0f);
      return;
    }
    const auto put_padding = [&](int i) {
      const int64_t at = input_position(a, from + i, job.length);
      placed[i] = at >= 0 ? source[at - from] : from_float<Element>(0.0f);
    };
#pragma unroll 1
    for (int i = lane; i < begin; i += 32) put_padding(i);
#pragma unroll 1
    for (int i = end + lane; i < places; i += 32) put_padding(i);
  }
};

// A row's weights, complete after ptx::wait_copies and __syncwarp. The packed weight is the weight in fp32.
__device__ __forceinline__ void request_weights(const Arguments& a, const Job& job, float* row, int lane) {
  const int taps = static_cast<int>(a.k);
  const auto* weight = static_cast<const float*>(a.packed_weight()) + int64_t{job.channel} * taps;
  for (int k = lane; k < taps; k += 32) {
    ptx::copy_async_or_zeros<4>(ptx::shared_address(row + k), weight + k, true);
  }
}

}  // namespace convnorm::cuda::depthwise
