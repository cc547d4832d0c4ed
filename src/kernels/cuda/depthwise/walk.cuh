// Tiles of a job: which outputs a lane computes at a time, and their products.
#pragma once

#include "kernels/cuda/depthwise/config.hpp"
#include "kernels/cuda/element.cuh"

namespace convnorm::cuda::depthwise {

// A row in shared memory.
template <class Element>
struct Row {
  const Element* x;  // at place -shift
  const float* w;    // [taps]
  int shift, taps, stride, dilation;
  int elements;  // that may be read from x
};

// Four neighbouring elements, aligned to their size.
__device__ __forceinline__ float4 load_four(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ __forceinline__ float4 load_four(const __half* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  const float2 low = __half22float2(reinterpret_cast<const __half2&>(bits.x));
  const float2 high = __half22float2(reinterpret_cast<const __half2&>(bits.y));
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ __forceinline__ float4 load_four(const __nv_bfloat16* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

__device__ __forceinline__ void add_products(float* sums, float w, const float4& x) {
  sums[0] = fmaf(w, x.x, sums[0]);
  sums[1] = fmaf(w, x.y, sums[1]);
  sums[2] = fmaf(w, x.z, sums[2]);
  sums[3] = fmaf(w, x.w, sums[3]);
}

template <class Element_, Walk kWalk_>
struct Traits {
  using Element = Element_;
  static constexpr Walk kWalk = kWalk_;
  static constexpr bool kInVectors = kWalk != Walk::kScalars;
  static constexpr int kVectors = kWalk == Walk::kSteps ? 5 : 4;  // of four outputs
  static constexpr int kOutputs = 4 * kVectors;                   // of a lane and tile

  // Neighbouring vectors of a lane, or neighbouring values where there are no vectors, are this far apart.
  static __device__ __forceinline__ int step(const Row<Element>& row) {
    return kWalk == Walk::kSteps ? row.dilation : kInVectors ? kBlock : 32;
  }

  // Output i of a lane, from the piece's first; negative before it.
  static __device__ __forceinline__ int position(const Row<Element>& row, int base, int lane, int i) {
    const int at = kInVectors ? base + i / 4 * step(row) + 4 * lane + i % 4 : base + 32 * i + lane;
    return at - row.shift;
  }

  // body(base) for all tiles with outputs among [0, positions).
  template <class Body>
  static __device__ __forceinline__ void for_each_tile(const Row<Element>& row, int positions, const Body& body) {
    const int end = positions + row.shift;
    if constexpr (kWalk == Walk::kSteps) {
      for (int block = 0; block < min(row.dilation, end); block += kBlock) {
#pragma unroll 1
        for (int base = block; base < end; base += kVectors * row.dilation) body(base);
      }
    } else {
#pragma unroll 1
      for (int base = 0; base < end; base += 32 * kOutputs) body(base);
    }
  }

  // v = start + w * x for a tile. Outputs outside [0, positions) get what happens to lie there.
  static __device__ __forceinline__ void multiply(const Row<Element>& row, int positions, int base, int lane,
                                                  float start, float (&v)[kOutputs]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) v[i] = start;
    if constexpr (kWalk == Walk::kSteps) {
      if (row.taps == kFewTaps) {
        few_steps(row, base + 4 * lane, v);
      } else {
        steps(row, base + 4 * lane, v);
      }
    } else if constexpr (kInVectors) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const int at = base + j * kBlock + 4 * lane;
        if (at >= positions + row.shift) continue;
        if constexpr (kWalk == Walk::kWindow) {
          window(row, row.x + at, v + 4 * j);
        } else if (row.taps == kFewTaps) {
#pragma unroll
          for (int k = 0; k < kFewTaps; ++k) {
            add_products(v + 4 * j, row.w[k], load_four(row.x + at + k * row.dilation));
          }
        } else {
#pragma unroll 1
          for (int k = 0; k < row.taps; ++k)
            add_products(v + 4 * j, row.w[k], load_four(row.x + at + k * row.dilation));
        }
      }
    } else {
      scalars(row, positions, base, lane, v);
    }
  }

 private:
  static constexpr int kFewTaps = 3;  // as most dilated convolutions have: without a loop

  // Of an output `step` dilations further on; the last inputs held where no output needs any.
  static __device__ __forceinline__ float4 input(const Row<Element>& row, int at, int step) {
    return load_four(row.x + min(at + step * row.dilation, row.elements - 4));
  }

  // Outputs one dilation apart: the input of tap k for one is that of tap k + 1 for the one before.
  static __device__ __forceinline__ void few_steps(const Row<Element>& row, int at, float (&v)[kOutputs]) {
    const float w[kFewTaps] = {row.w[0], row.w[1], row.w[2]};
#pragma unroll
    for (int step = 0; step < kVectors + kFewTaps - 1; ++step) {
      const float4 x = input(row, at, step);
#pragma unroll
      for (int k = 0; k < kFewTaps; ++k) {
        if (step - k >= 0 && step - k < kVectors) add_products(v + 4 * (step - k), w[k], x);
      }
    }
  }

  static __device__ __forceinline__ void steps(const Row<Element>& row, int at, float (&v)[kOutputs]) {
    float4 x[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) x[j] = input(row, at, j);
#pragma unroll 1
    for (int k0 = 0; k0 < row.taps; k0 += kVectors) {
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if (k0 + k >= row.taps) break;
        const float w = row.w[k0 + k];
#pragma unroll
        for (int j = 0; j < kVectors; ++j) add_products(v + 4 * j, w, x[(j + k) % kVectors]);
        if (k0 + k + 1 < row.taps) x[k] = input(row, at, k0 + k + kVectors);
      }
    }
  }

  static __device__ __forceinline__ void window(const Row<Element>& row, const Element* from, float* v) {
    float x[8];
    const auto put = [&](int i, const float4& four) {
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    };
    put(4, load_four(from));
#pragma unroll 1
    for (int k0 = 0; k0 < row.taps; k0 += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = x[i + 4];
      put(4, load_four(from + k0 + 4));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (k0 + k >= row.taps) break;
        const float w = row.w[k0 + k];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = fmaf(w, x[i + k], v[i]);
      }
    }
  }

  static __device__ __forceinline__ void scalars(const Row<Element>& row, int positions, int base, int lane,
                                                 float (&v)[kOutputs]) {
    int at[kOutputs];
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      at[i] = row.shift + min(max(position(row, base, lane, i), 0), positions - 1) * row.stride;
    }
#pragma unroll 1
    for (int k = 0; k < row.taps; ++k) {
      const float w = row.w[k];
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) v[i] = fmaf(w, to_float(row.x[at[i] + k * row.dilation]), v[i]);
    }
  }
};

}  // namespace convnorm::cuda::depthwise
