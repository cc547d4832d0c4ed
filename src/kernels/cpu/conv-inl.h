// The register tile of the convolution, once per instruction set.
//
// A tile holds M x V vectors of accumulators. Each step (one input channel, one tap) loads V vectors and M broadcast
// scalars and does M*V fused multiply-adds. With L as the vector dimension the vectors come from x and the scalars from
// w; with output channels as the vector dimension it is the other way round. 6 x 2 keeps 12 independent sums in flight
// (two multiply-add units, latency 4) and leaves registers for the operands on 16-register machines: gcc 12 and clang
// 14 both compile it without spills, where the larger 4 x 3 makes gcc spill.
#if defined(CONVNORM_CONV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVNORM_CONV_INL_H_
#undef CONVNORM_CONV_INL_H_
#else
#define CONVNORM_CONV_INL_H_
#endif

#include <array>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace convnorm::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kWideVectors = 2, kNarrowVectors = 8;
// AVX-512 has 32 registers: twice the rows halve the loads of x.
inline constexpr int kWideRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;

template <int M, int V>
struct Tile {
  using VF = hn::Vec<hn::ScalableTag<float>>;
  VF sum[M][V];

  CONVNORM_INLINE void load(const float* z, int64_t z_row) {
    const hn::ScalableTag<float> d;
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[m][v] = hn::LoadU(d, z + m * z_row + v * hn::Lanes(d));
  }
  CONVNORM_INLINE void fill(const float* per_row) {
    const hn::ScalableTag<float> d;
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[m][v] = per_row ? hn::Set(d, per_row[m]) : hn::Zero(d);
  }
  CONVNORM_INLINE void store(float* z, int64_t z_row) const {
    const hn::ScalableTag<float> d;
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) hn::StoreU(sum[m][v], d, z + m * z_row + v * hn::Lanes(d));
  }
  template <class Element>
  CONVNORM_INLINE void step(const Element* vectors, const float* scalars) {
    const hn::ScalableTag<float> d;
    VF x[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) x[v] = load_float(d, vectors + v * hn::Lanes(d));
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const VF w = hn::Set(d, scalars[m]);
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[m][v] = hn::MulAdd(w, x[v], sum[m][v]);
    }
  }
};

template <int M, int V>
HWY_NOINLINE void row_tile(const RowConv& c, const float* w, const float* x, float* z, const float* bias) {
  Tile<M, V> tile;
  if (c.first) {
    tile.fill(bias);
  } else {
    tile.load(z, c.z_row);
  }
  const int64_t* HWY_RESTRICT offset = c.tap_offset;
  const int64_t taps = c.taps, x_row = c.x_row;
  for (int64_t channel = c.channels; channel > 0; --channel) {
    for (int64_t t = 0; t < taps; ++t) {
      tile.step(x + offset[t], w);
      w += M;
    }
    x += x_row;
  }
  tile.store(z, c.z_row);
}

using RowTile = void (*)(const RowConv&, const float*, const float*, float*, const float*);

template <int V, int... kHeightLessOne>
constexpr std::array<RowTile, sizeof...(kHeightLessOne)> row_tiles(std::integer_sequence<int, kHeightLessOne...>) {
  return {row_tile<kHeightLessOne + 1, V>...};
}

template <int V, int kMostRows>
void conv_rows(const RowConv& c) {
  static constexpr auto kTiles = row_tiles<V>(std::make_integer_sequence<int, kMostRows>());
  const int64_t panel = V * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  // Panels outside: a panel of x stays in the first-level cache for all tiles, and w, read in order, is prefetched.
  for (int64_t p = 0; p < c.panels; ++p) {
    int64_t row = 0;
    for (int64_t tile = 0; row < c.rows; ++tile) {
      const int64_t height = tile_height(c.rows, kMostRows, tile);
      kTiles[static_cast<size_t>(height - 1)](c, c.w + row * c.steps + c.steps_before * height, c.x + p * panel,
                                              c.z + row * c.z_row + p * panel, c.bias ? c.bias + row : nullptr);
      row += height;
    }
  }
}

inline void conv_wide(const RowConv& c) { conv_rows<kWideVectors, kWideRows>(c); }

// One row at a time over eight vectors of positions: for convolution groups of one or two output channels.
inline void conv_narrow(const RowConv& c) { conv_rows<kNarrowVectors, 1>(c); }

// Steps of weights (a cache line each, or half of one) requested ahead.
inline constexpr int64_t kPrefetchSteps = 32;

template <int M, class Element>
HWY_NOINLINE void channel_tile(const ChannelConv& c, const float* x, float* z) {
  const int64_t block = kWideVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  Tile<M, kWideVectors> tile;
  tile.load(z, block);
  const Element* HWY_RESTRICT w = static_cast<const Element*>(c.w);
  const int64_t* HWY_RESTRICT offset = c.tap_offset;
  for (int64_t channel = c.channels; channel > 0; --channel) {
    for (int64_t t = 0; t < c.taps; ++t) {
      // Weights arrive from memory once and in order; the hardware's own prefetch stops at every page.
      hwy::Prefetch(w + kPrefetchSteps * block);
      tile.step(w, x + offset[t]);
      w += block;
    }
    x += c.x_row;
  }
  tile.store(z, block);
}

using ChannelTile = void (*)(const ChannelConv&, const float*, float*);

template <class Element, int... kHeightLessOne>
constexpr std::array<ChannelTile, sizeof...(kHeightLessOne)> channel_tiles(
    std::integer_sequence<int, kHeightLessOne...>) {
  return {channel_tile<kHeightLessOne + 1, Element>...};
}

template <class Element>
void conv_channels_of(const ChannelConv& c) {
  static constexpr auto kTiles = channel_tiles<Element>(std::make_integer_sequence<int, kWideRows>());
  const int64_t block = kWideVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  int64_t m = 0;
  for (int64_t tile = 0; m < c.positions; ++tile) {
    const int64_t height = tile_height(c.positions, kWideRows, tile);
    kTiles[static_cast<size_t>(height - 1)](c, c.x + m, c.z + m * block);
    m += height;
  }
}

inline void conv_channels(const ChannelConv& c) {
  switch (c.w_dtype) {
    case CONVNORM_F32:
      return conv_channels_of<float>(c);
    case CONVNORM_F16:
      return conv_channels_of<hwy::float16_t>(c);
    case CONVNORM_BF16:
      return conv_channels_of<hwy::bfloat16_t>(c);
  }
}

}  // namespace convnorm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // CONVNORM_CONV_INL_H_
