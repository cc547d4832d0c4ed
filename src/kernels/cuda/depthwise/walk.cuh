// Tiles of a job: which outputs a lane computes at a time, and their products.
#pragma once

#include "kernels/cuda/depthwise/config.hpp"
#include "kernels/cuda/element.cuh"

namespace convnorm::cuda::depthwise {

// A row in shared memory.
template <class Element>
struct Row {
  const Element* x;  // at place -shift
  const float* w;    // [taps], at a multiple of 16 bytes
  int shift, taps, stride, dilation;
  int elements;  // that may be read from x
  int lane_at;   // where this lane's first outputs lie in a tile
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
  static constexpr int kVectors = kWalk == Walk::kSteps ? 5 : 4;                     // of four outputs
  static constexpr int kOutputs = 4 * kVectors;                                      // of a lane and tile
  static constexpr bool kKeeps = kWalk == Walk::kWindow || kWalk == Walk::kScalars;  // outputs of jobs of one tile

  // Neighbouring vectors of a lane, or neighbouring values where there are no vectors, are this far apart.
  static __device__ __forceinline__ int step(const Row<Element>& row) {
    return kWalk == Walk::kSteps ? row.dilation : kInVectors ? kBlock : 32;
  }

  // Row::lane_at. In steps, 1 << `lanes` lanes take neighbouring vectors, a dilation or a block in all, and the next
  // ones what lies kVectors dilations further on.
  static __device__ __forceinline__ int lane_at(int lane, int lanes, int dilation) {
    if constexpr (kWalk != Walk::kSteps) return kInVectors ? 4 * lane : lane;
    return (lane >> lanes) * kVectors * dilation + (lane & ((1 << lanes) - 1)) * 4;
  }

  // Output i of this lane, from the piece's first; negative before it.
  static __device__ __forceinline__ int position(const Row<Element>& row, int base, int i) {
    return base + (kInVectors ? i / 4 * step(row) + i % 4 : 32 * i) + row.lane_at - row.shift;
  }

  // Outputs from the first to the last of a tile.
  static __device__ __forceinline__ int extent(const Row<Element>& row) {
    return kWalk == Walk::kSteps ? (kVectors - 1) * max(row.dilation, kBlock) + kBlock : 32 * kOutputs;
  }

  // body(base) for all tiles with outputs among [0, positions).
  template <class Body>
  static __device__ __forceinline__ void for_each_tile(const Row<Element>& row, int positions, const Body& body) {
    const int end = positions + row.shift;
    if constexpr (kWalk == Walk::kSteps) {
      for (int block = 0; block < min(row.dilation, end); block += kBlock) {
#pragma unroll 1
        for (int base = block; base < end; base += kVectors * max(row.dilation, kBlock)) body(base);
      }
    } else {
#pragma unroll 1
      for (int base = 0; base < end; base += 32 * kOutputs) body(base);
    }
  }

  // v = start + w * x for a tile. Outputs outside [0, positions) get what happens to lie there; kWhole: there are none.
  // kFew: there are kFewTaps, which else is asked.
  template <bool kWhole, bool kFew = false>
  static __device__ __forceinline__ void multiply(const Row<Element>& row, int positions, int base, float start,
                                                  float (&v)[kOutputs]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) v[i] = start;
    if constexpr (kWalk == Walk::kSteps) {
      if (kFew || row.taps == kFewTaps) {
        few_steps<kWhole>(row, base + row.lane_at, v);
      } else {
        steps<kWhole>(row, base + row.lane_at, v);
      }
    } else if constexpr (kWalk == Walk::kWindow) {
#pragma unroll
      for (int j = 0; j < kVectors; j += 2) {
        if (kWhole || base + j * kBlock < positions + row.shift)
          window(row, base + j * kBlock + row.lane_at, v + 4 * j);
      }
    } else if constexpr (kInVectors) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const int at = base + j * kBlock + row.lane_at;
        if (!kWhole && at >= positions + row.shift) continue;
        if (kFew || row.taps == kFewTaps) {
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
      scalars(row, positions, base, v);
    }
  }

 private:
  // Of an output `step` dilations further on; the last inputs held where no output needs any.
  template <bool kWhole>
  static __device__ __forceinline__ float4 input(const Row<Element>& row, int at, int step) {
    const int from = at + step * row.dilation;
    return load_four(row.x + (kWhole ? from : min(from, row.elements - 4)));
  }

  // Outputs one dilation apart: the input of tap k for one is that of tap k + 1 for the one before.
  template <bool kWhole>
  static __device__ __forceinline__ void few_steps(const Row<Element>& row, int at, float (&v)[kOutputs]) {
    const float w[kFewTaps] = {row.w[0], row.w[1], row.w[2]};
#pragma unroll
    for (int step = 0; step < kVectors + kFewTaps - 1; ++step) {
      const float4 x = input<kWhole>(row, at, step);
#pragma unroll
      for (int k = 0; k < kFewTaps; ++k) {
        if (step - k >= 0 && step - k < kVectors) add_products(v + 4 * (step - k), w[k], x);
      }
    }
  }

  template <bool kWhole>
  static __device__ __forceinline__ void steps(const Row<Element>& row, int at, float (&v)[kOutputs]) {
    float4 x[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) x[j] = input<kWhole>(row, at, j);
#pragma unroll 1
    for (int k0 = 0; k0 < row.taps; k0 += kVectors) {
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if (k0 + k >= row.taps) break;
        const float w = row.w[k0 + k];
#pragma unroll
        for (int j = 0; j < kVectors; ++j) add_products(v + 4 * j, w, x[(j + k) % kVectors]);
        if (k0 + k + 1 < row.taps) x[k] = input<kWhole>(row, at, k0 + k + kVectors);
      }
    }
  }

  // Two vectors of outputs, kBlock apart, which share the weights.
  static __device__ __forceinline__ void window(const Row<Element>& row, int at, float* v) {
    constexpr int kPair = 2;
    const Element* from[kPair];
    float x[kPair][8];
    const auto put = [](float* to, const float4& four) {
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    };
    const int last = row.elements - 4 - (row.taps + 3) / 4 * 4;  // where a vector starts whose inputs are all held
#pragma unroll
    for (int j = 0; j < kPair; ++j) {
      from[j] = row.x + min(at + j * kBlock, last);
      put(x[j], load_four(from[j]));
    }
    const auto take = [&](int j, int k, float w) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[4 * j + i] = fmaf(w, x[j][i + k], v[4 * j + i]);
    };
    int k0 = 0;
#pragma unroll 2
    for (; k0 + 4 <= row.taps; k0 += 4) {
      const float4 w = load_four(row.w + k0);
#pragma unroll
      for (int j = 0; j < kPair; ++j) {
        put(x[j] + 4, load_four(from[j] + k0 + 4));
        take(j, 0, w.x), take(j, 1, w.y), take(j, 2, w.z), take(j, 3, w.w);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[j][i] = x[j][i + 4];
      }
    }
    if (k0 == row.taps) return;
#pragma unroll
    for (int j = 0; j < kPair; ++j) {
      put(x[j] + 4, load_four(from[j] + k0 + 4));
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        if (k0 + k < row.taps) take(j, k, row.w[k0 + k]);
      }
    }
  }

  static __device__ __forceinline__ void scalars(const Row<Element>& row, int positions, int base,
                                                 float (&v)[kOutputs]) {
    int at[kOutputs];
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      at[i] = row.shift + min(max(position(row, base, i), 0), positions - 1) * row.stride;
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
