#include "kernels/cpu/convolve.hpp"

#include <algorithm>

#include "hwy/cache_control.h"

namespace convnorm::cpu {

namespace {

// Rows ahead of the one that is being packed. A strip touches a few cache lines of every row and then jumps to the
// next, which the hardware's own prefetch does not follow.
constexpr int64_t kPrefetchRows = 4;
constexpr int64_t kAhead = 1024;         // floats
constexpr int64_t kMostPrefetch = 1024;  // inputs of a row; longer ones the hardware follows

void request(const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) hwy::Prefetch(from + at);
}

}  // namespace

void pack_inputs(const Geometry& g, const void* x, int64_t n, int64_t length, int64_t conv_group, const Chunk& chunk,
                 int64_t begin, float* inputs, float* line) {
  const Problem& p = g.problem;
  const bool nlc = p.layout == CONVNORM_NLC;
  const int64_t element = element_size(p.dtype);
  const int64_t first = begin * p.stride + chunk.tap * p.dilation - p.pad_left;
  for (int64_t c = 0; c < chunk.channels; ++c) {
    const int64_t channel = conv_group * g.sizes.c_per_conv_group + chunk.channel + c;
    const int64_t origin = nlc ? n * p.l * p.c + channel : (n * p.c + channel) * p.l;
    FetchRow fetch = {.x = static_cast<const char*>(x) + origin * element,
                      .step = nlc ? p.c : 1,
                      .length = length,
                      .first = first,
                      .every = 1,
                      .count = g.phase_row,
                      .reach_left = p.pad_left,
                      .reach_right = p.pad_right,
                      .dtype = p.dtype,
                      .pad = p.pad};
    if (!nlc && c + kPrefetchRows < chunk.channels) {
      const int64_t begin_inside = std::max<int64_t>(first, 0), count = g.line > 0 ? g.line : g.phase_row * p.stride;
      request(static_cast<const char*>(x) + (origin + kPrefetchRows * p.l + begin_inside) * element,
              (std::min(first + std::min(count, kMostPrefetch), length) - begin_inside) * element);
    }
    float* row = inputs + c * g.x_row;
    if (g.line > 0) {
      fetch.count = g.line;
      g.kernels->fetch_row(fetch, line);
      if (g.all_phases) {
        g.kernels->deal_phases(line, p.stride, row, g.phase_row, g.phase_row);
        continue;
      }
      for (size_t f = 0; f < g.phases.size(); ++f) {
        g.kernels->take_every(line + g.phases[f], p.stride, row + static_cast<int64_t>(f) * g.phase_row, g.phase_row);
      }
    } else {
      fetch.every = p.stride;
      for (size_t f = 0; f < g.phases.size(); ++f) {
        fetch.first = first + g.phases[f];
        g.kernels->fetch_row(fetch, row + static_cast<int64_t>(f) * g.phase_row);
      }
    }
  }
}

Convolver::Inputs Convolver::pack(int64_t n, int64_t length, int64_t conv_group, int64_t index, int64_t begin,
                                  int64_t panels) {
  const Chunk chunk = g_.chunk(index);
  if (g_.reads_in_place()) {
    const Problem& p = g_.problem;
    const int64_t first = begin + chunk.tap * p.dilation - p.pad_left;
    if (first >= 0 && first + panels * g_.panel + (chunk.taps - 1) * p.dilation <= length) {
      const int64_t channel = n * p.c + conv_group * g_.sizes.c_per_conv_group + chunk.channel;
      const float* row = static_cast<const float*>(x_) + channel * p.l + first;
      // Rows follow one another, so the page after this one is most likely next; hardware stops at its border.
      const int64_t at = channel * p.l + first + kAhead;
      request(reinterpret_cast<const char*>(row + kAhead), std::min(panels * g_.panel, g_.sizes.x_elements - at) * 4);
      return {row, p.l};
    }
  }
  const int64_t key[4] = {n, conv_group, index, begin};
  if (!std::equal(key, key + 4, packed_key_)) {
    std::copy(key, key + 4, packed_key_);
    pack_inputs(g_, x_, n, length, conv_group, chunk, begin, inputs_, line_);
  }
  return {inputs_, g_.x_row};
}

void Convolver::operator()(int64_t n, int64_t length, Block block, int64_t begin, int64_t end, float* z,
                           int64_t z_row) {
  const auto conv = g_.narrow ? g_.kernels->conv_narrow : g_.kernels->conv_wide;
  const int64_t last = block.first + block.rows;
  for (int64_t strip = begin; strip < end; strip += g_.strip) {
    const int64_t panels = ceil_div(std::min(g_.strip, end - strip), g_.panel);
    for (int64_t o = block.first; o < last;) {
      const int64_t rows = g_.segment_rows(o, last);
      for (int64_t i = 0; i < g_.chunks(); ++i) {
        const Chunk chunk = g_.chunk(i);
        const Inputs inputs = pack(n, length, o / g_.sizes.o_per_conv_group, i, strip, panels);
        conv({.x = inputs.x,
              .x_row = inputs.x_row,
              .tap_offset = g_.tap_offset.data(),
              .channels = chunk.channels,
              .taps = chunk.taps,
              .w = packed_ + o * g_.steps,
              .steps = g_.steps,
              .steps_before = chunk.steps_before,
              .rows = rows,
              .panels = panels,
              .z = z + (o - block.first) * z_row + strip - begin,
              .z_row = z_row,
              .bias = bias_ && i == 0 ? bias_ + o : nullptr,
              .first = i == 0});
      }
      o += rows;
    }
  }
}

}  // namespace convnorm::cpu
