// One worker's convolution of a block of channels over a run of positions, with its packed-input buffer.
#pragma once

#include "kernels/cpu/geometry.hpp"

namespace convnorm::cpu {

class Convolver {
 public:
  static int64_t scratch_floats(const Geometry& g) { return round_up(g.channel_chunk * g.x_row + g.line, 16); }

  Convolver(const Geometry& geometry, const void* x, const float* packed, const float* bias, float* scratch)
      : g_(geometry),
        x_(x),
        packed_(packed),
        bias_(bias),
        inputs_(scratch),
        line_(scratch + g_.channel_chunk * g_.x_row) {}

  // z[r * z_row + q - begin] for the rows of the block and the outputs [begin, end) of sample n with `length` valid
  // inputs. Rows are written to a whole number of panels.
  void operator()(int64_t n, int64_t length, Block block, int64_t begin, int64_t end, float* z, int64_t z_row);

 private:
  struct Inputs {
    const float* x;
    int64_t x_row;
  };
  // What a chunk needs for `panels` panels of outputs from `begin` on: packed, unless it is there already or can be
  // read where it is.
  Inputs pack(int64_t n, int64_t length, int64_t conv_group, int64_t chunk, int64_t begin, int64_t panels);

  const Geometry& g_;
  const void* x_;
  const float* packed_;
  const float* bias_;
  float* inputs_;
  float* line_;
  int64_t packed_key_[4] = {-1, -1, -1, -1};
};

// The packed rows of one chunk: also used where all inputs of a sample are packed at once.
void pack_inputs(const Geometry& g, const void* x, int64_t n, int64_t length, int64_t conv_group, const Chunk& chunk,
                 int64_t begin, float* inputs, float* line);

}  // namespace convnorm::cpu
