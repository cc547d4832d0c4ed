#include "kernels/cpu/geometry.hpp"

#include <algorithm>

#include "kernels/cpu/caches.hpp"

namespace convnorm::cpu {

namespace {

// Bytes of x that one register tile may read in one chunk: they are read again for every tile of rows and should stay
// in a first-level cache of 32 KiB beside the weights. Fixed, not detected: the order of summation follows from it.
constexpr int64_t kChunkBytes = 20 * 1024;
constexpr int64_t kMostTaps = 256;
constexpr int64_t kMostTapSpan = 4096;
// Up to this stride the inputs of a strip are fetched as a contiguous line and dealt to phases; above it most of the
// line would be thrown away.
constexpr int64_t kMostLineStride = 8;
// The inputs of one panel and chunk, halo included.
constexpr int64_t kPanelBytes = 96 * 1024;

// Packed inputs of a strip share the second-level cache with z. Longer strips are fetched with longer reads; the bits
// do not depend on their length. Measured on the default problem: 256 KiB of 2 MiB are 4% ahead of 96 KiB.
int64_t strip_bytes() { return std::clamp<int64_t>(cache_bytes(2) / 4, 64 * 1024, 256 * 1024); }

}  // namespace

Geometry::Geometry(const Problem& p, const Kernels& k, int64_t block_rows_)
    : problem(p), sizes(p), kernels(&k), block_rows(block_rows_) {
  narrow = sizes.o_per_conv_group <= 2;
  panel = narrow ? k.narrow_panel : k.wide_panel;
  steps = sizes.c_per_conv_group * p.k;
  halves = has_post(p, CONVNORM_GLU) ? 2 : 1;
  half = p.o / halves;

  tap_chunk = std::max<int64_t>(1, std::min({p.k, kMostTaps, 1 + kMostTapSpan / p.dilation}));
  const int64_t span = (tap_chunk - 1) * p.dilation;
  std::vector<int64_t> slot;  // of each tap's phase
  for (int64_t t = 0; t < tap_chunk; ++t) {
    const int64_t phase = t * p.dilation % p.stride;
    const auto found = std::find(phases.begin(), phases.end(), phase);
    slot.push_back(found - phases.begin());
    if (found == phases.end()) phases.push_back(phase);
  }
  all_phases = static_cast<int64_t>(phases.size()) == p.stride && std::is_sorted(phases.begin(), phases.end());
  const int64_t phase_count = static_cast<int64_t>(phases.size());
  const int64_t extra = span / p.stride + 1;

  const int64_t held = phase_count * (panel + extra) * 4;
  // A tap touches a panel and, since that is not aligned, one cache line more.
  const int64_t touched = std::min(held, tap_chunk * (panel * 4 + 64));
  channel_chunk = std::clamp<int64_t>(std::min(kChunkBytes / touched, kPanelBytes / held), 1, sizes.c_per_conv_group);
  channel_chunks = ceil_div(sizes.c_per_conv_group, channel_chunk);
  tap_chunks = ceil_div(p.k, tap_chunk);

  const int64_t fit = strip_bytes() / (4 * channel_chunk * phase_count) - extra;
  const int64_t most = std::min(kStatisticsBlock, round_up(sizes.l_out, panel));
  strip = std::clamp(fit / panel * panel, panel, std::max(most, panel));

  // Not a multiple of 256 bytes, so that the rows of neighbouring channels fall into different cache sets.
  phase_row = round_up(strip + extra, 16) + 4;
  x_row = phase_count * phase_row;
  for (int64_t t = 0; t < tap_chunk; ++t) {
    tap_offset.push_back(slot[static_cast<size_t>(t)] * phase_row + t * p.dilation / p.stride);
  }
  line = p.stride > 1 && p.stride <= kMostLineStride ? phase_row * p.stride : 0;
}

Chunk Geometry::chunk(int64_t index) const {
  const int64_t c = index / tap_chunks * channel_chunk, t = index % tap_chunks * tap_chunk;
  const int64_t channels = std::min(channel_chunk, sizes.c_per_conv_group - c);
  return {c, channels, t, std::min(tap_chunk, problem.k - t), c * problem.k + channels * t};
}

int64_t Geometry::segment_rows(int64_t o, int64_t end) const {
  return std::min(end, (o / sizes.o_per_conv_group + 1) * sizes.o_per_conv_group) - o;
}

// Tile after tile, chunk after chunk, step after step: the scalars of one step lie side by side.
void Geometry::pack_block(const void* weight, Block block, float* packed) const {
  const int64_t most = narrow ? 1 : kernels->wide_rows;
  const int64_t element = element_size(problem.dtype);
  float values[kMostTaps];
  for (int64_t o = block.first; o < block.first + block.rows;) {
    const int64_t rows = segment_rows(o, block.first + block.rows);
    const int64_t tiles = ceil_div(rows, most);
    for (int64_t tile = 0, r = 0; tile < tiles; ++tile) {
      const int64_t height = tile_height(rows, most, tile);
      float* out = packed + (o + r) * steps;
      for (int64_t m = 0; m < height; ++m) {
        int64_t at = 0;
        for (int64_t i = 0; i < chunks(); ++i) {
          const Chunk c = chunk(i);
          for (int64_t ch = c.channel; ch < c.channel + c.channels; ++ch) {
            const int64_t source = (o + r + m) * steps + ch * problem.k + c.tap;
            kernels->to_float(static_cast<const char*>(weight) + source * element, problem.dtype, values, c.taps);
            for (int64_t t = 0; t < c.taps; ++t) out[at++ * height + m] = values[t];
          }
        }
      }
      r += height;
    }
    o += rows;
  }
}

}  // namespace convnorm::cpu
