// The numbers with which the two passes run one problem: plain values, chosen on the host (plan.cpp), printed by
// explain().
#pragma once

#include <cstdint>

#include "kernels/cuda/sm90_onchip/config.hpp"

namespace convnorm::cuda::sm90_two_pass {

// What the first pass leaves for the second one beside the moments.
enum class Way : int {
  kStore,      // z, in fp32
  kRecompute,  // nothing: the second pass convolves again
};

// Who computes beside whom.
enum class Width : int {
  kPair,  // two CTAs of one warpgroup share an SM: the epilogue of one runs under the products of the other
  kTwo,   // up to two warpgroups of one CTA
};

struct Config {
  sm90_onchip::Config tiles;  // as of a plain convolution: every tile is a domain of its own
  Width width;
  Way way;
  bool in_place;     // z lies in y
  int64_t at_once;   // samples that share the workspace
  int64_t pitch;     // of z: from row to row
  int64_t segments;  // of a row: column tiles
  int blocks;        // of 64 channels
  int of_block;      // groups that share a block, at most
};

// `config.tiles` for `samples` samples.
inline sm90_onchip::Config tiles_of(const Config& config, int64_t samples, int sm_count) {
  const int ctas = config.width == Width::kPair ? 2 * sm_count : sm_count;
  sm90_onchip::Config tiles = config.tiles;
  tiles.sample_blocks = static_cast<int>(samples);
  tiles.domains = static_cast<int>(tiles.row_domains.value) * tiles.column_tiles * tiles.sample_blocks;
  const int64_t most = tiles.domains < ctas ? tiles.domains : ctas;
  tiles.iterations = static_cast<int>((tiles.domains + most - 1) / most);
  tiles.teams = (tiles.domains + tiles.iterations - 1) / tiles.iterations;
  return tiles;
}

// Regions of the workspace, as byte offsets; of no bytes where they are not needed.
struct WorkspacePlan {
  int64_t z;       // (at_once, C_out, pitch) fp32
  int64_t pieces;  // (at_once, segments, blocks, of_block) moments
  int64_t norms;   // (at_once, G)
  int64_t bytes;
};

}  // namespace convnorm::cuda::sm90_two_pass
