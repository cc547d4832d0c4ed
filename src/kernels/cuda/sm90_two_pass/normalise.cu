// The second pass where z was kept: z to y, in the reverse of the order in which z was written, so that what the
// second-level cache still holds of it is read first.
#include <algorithm>

#include "kernels/cuda/collective/row_ops.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/sm90_two_pass/launch.hpp"
#include "kernels/cuda/sm90_two_pass/row_norm.cuh"

namespace convnorm::cuda::sm90_two_pass {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Of y, of a lane: enough to have on their way, and few enough for the code of the ops, which exists once for each.
template <bool kGlu>
constexpr int kOwnValues = kGlu ? 8 : 16;

// What a lane has of y. Channels first: vectors of 16 bytes of one row, the next ones 32 lanes on. Channels last: kOwn
// positions of a channel of its own, so that the lanes' stores are neighbours.
template <class Element, bool kChannelsLast, bool kGlu>
class Piece {
 public:
  static constexpr int kOwn = kOwnValues<kGlu>;
  static constexpr int kVector = kChannelsLast ? 4 : 16 / sizeof(Element), kVectors = kOwn / kVector;

  __device__ Piece(const Arguments& a, const ZRows& z, int64_t n, int channel, int64_t first)
      : a_(a), z_(z), n_(n), channel_(channel), first_(first) {
    const int lane = threadIdx.x % 32;
    if constexpr (kChannelsLast) {
      channel_ += lane;
    } else {
      // Vectors are whole in y, wherever the row begins.
      first_ += lane * kVector - static_cast<int>(reinterpret_cast<uintptr_t>(row()) % 16 / sizeof(Element));
    }
    wanted_ = channel_ < a.c_y;
    valid_ = a.lengths == nullptr ? a.l_out : min(a.l_out, valid_outputs(a, sample_length(a, n)));
  }

  __device__ void run() const {
    if (!wanted_) return;
    float v[kGlu ? 2 : 1][kOwn];  // with a glu the channel that gates comes second
    const auto at = [&](int h) { return RowPlace{n_, channel_ + h * a_.c_y}; };
    const auto position_of = [&](int i) {
      const int64_t l = position(i / kVector) + i % kVector;
      return l >= 0 && l < a_.l_out ? l : int64_t{-1};
    };
#pragma unroll
    for (int h = 0; h < (kGlu ? 2 : 1); ++h) load(static_cast<int>(at(h).channel), v[h]);
#pragma unroll
    for (int h = 0; h < (kGlu ? 2 : 1); ++h) normalise(static_cast<int>(at(h).channel), v[h]);
    apply_row_post<Element>(a_, 0, a_.glu, v, at, position_of);
    auto& result = reinterpret_cast<float(&)[1][kOwn]>(v);
    if constexpr (kGlu) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) v[0][i] *= DeviceMath::sigmoid(v[1][i]);
      apply_row_post<Element>(a_, a_.glu + 1, a_.post_count, result, at, position_of);
    }
    store(result[0]);
  }

 private:
  __device__ __forceinline__ Element* row() const {
    return static_cast<Element*>(a_.y) + (n_ * a_.c_y + channel_) * a_.l_out;
  }

  __device__ __forceinline__ int64_t position(int vector) const {
    return first_ + vector * (kChannelsLast ? kVector : 32 * kVector);
  }

  __device__ __forceinline__ bool whole(int64_t position) const {
    return position >= 0 && position + kVector <= a_.l_out;
  }

  __device__ __forceinline__ void load(int channel, float (&v)[kOwn]) const {
    const float* row = z_.z + (n_ * a_.o + channel) * z_.pitch;
    const bool aligned = reinterpret_cast<uintptr_t>(row + first_) % 16 == 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int64_t l = position(k);
      if (aligned && whole(l)) {
#pragma unroll
        for (int j = 0; j < kVector; j += 4) {
          const float4 four = __ldcs(reinterpret_cast<const float4*>(row + l + j));
          v[k * kVector + j] = four.x, v[k * kVector + j + 1] = four.y;
          v[k * kVector + j + 2] = four.z, v[k * kVector + j + 3] = four.w;
        }
      } else {
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          const bool inside = l + j >= 0 && l + j < a_.l_out;
          v[k * kVector + j] = inside ? row[l + j] : 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void normalise(int channel, float (&v)[kOwn]) const {
    const RowNorm norm = row_norm<Element>(a_, z_.norms, n_, channel);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) v[i] = norm(v[i]);
  }

  __device__ __forceinline__ void store(const float (&v)[kOwn]) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int64_t l = position(k);
      alignas(16) Element out[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) out[j] = from_float<Element>(l + j < valid_ ? v[k * kVector + j] : 0.0f);
      if constexpr (kChannelsLast) {
        Element* to = static_cast<Element*>(a_.y) + (n_ * a_.l_out + l) * a_.c_y + channel_;
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          if (l + j < a_.l_out) to[j * a_.c_y] = out[j];
        }
      } else if (whole(l)) {
        __stcs(reinterpret_cast<uint4*>(row() + l), *reinterpret_cast<const uint4*>(out));
      } else {
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          if (l + j >= 0 && l + j < a_.l_out) row()[l + j] = out[j];
        }
      }
    }
  }

  const Arguments& a_;
  const ZRows& z_;
  const int64_t n_;
  int channel_;
  int64_t first_;  // position of this lane's first value
  int64_t valid_;
  bool wanted_;
};

// Items of a warp each: a row's stretch, or 32 channels' kOwn positions. Channels fastest, as the first pass goes
// along.
struct Items {
  int64_t count, stretches, rows;  // of a sample
};

template <class Element, bool kChannelsLast, bool kGlu>
__global__ void __launch_bounds__(kThreads, 4)
    normalise_kernel(const __grid_constant__ Arguments a, const __grid_constant__ ZRows z,
                     const __grid_constant__ Items items) {
  const int64_t warps = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < items.count; i += warps) {
    const int64_t item = items.count - 1 - i;
    const int64_t place = item / items.rows, n = place / items.stretches;
    const auto channel = static_cast<int>(item - place * items.rows) * (kChannelsLast ? 32 : 1);
    const int64_t first = (place - n * items.stretches) * kOwnValues<kGlu> * (kChannelsLast ? 1 : 32);
    Piece<Element, kChannelsLast, kGlu>(a, z, n, channel, first).run();
  }
}

template <class Element, bool kChannelsLast, bool kGlu>
void launch_pieces(const Arguments& a, const ZRows& z, cudaStream_t stream) {
  constexpr int64_t kMostCtas = int64_t{1} << 30;
  constexpr int kOwn = kOwnValues<kGlu>;
  Items items{};
  // A row that begins within a vector may need one stretch more.
  items.stretches =
      kChannelsLast ? quotient_up(a.l_out, kOwn) : quotient_up(a.l_out + 16 / int64_t{sizeof(Element)} - 1, 32 * kOwn);
  items.rows = kChannelsLast ? quotient_up(a.c_y, 32) : a.c_y;
  items.count = a.n * items.stretches * items.rows;
  const int64_t ctas = std::min(quotient_up(items.count, kWarps), kMostCtas);
  launch("sm90_two_pass normalise", normalise_kernel<Element, kChannelsLast, kGlu>,
         {.grid = dim3(static_cast<unsigned>(ctas)), .block = dim3(kThreads)}, stream, a, z, items);
}

template <class Element, bool kChannelsLast>
void launch_layout(const Arguments& a, const ZRows& z, cudaStream_t stream) {
  a.glu < a.post_count ? launch_pieces<Element, kChannelsLast, true>(a, z, stream)
                       : launch_pieces<Element, kChannelsLast, false>(a, z, stream);
}

}  // namespace

void launch_normalise(const Arguments& a, const ZRows& z, cudaStream_t stream) {
  with_device_element(a.dtype, [&](auto type) {
    using Element = decltype(type);
    a.layout == CONVNORM_NCL ? launch_layout<Element, false>(a, z, stream) : launch_layout<Element, true>(a, z, stream);
  });
}

}  // namespace convnorm::cuda::sm90_two_pass
