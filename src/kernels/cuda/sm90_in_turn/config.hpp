// The numbers with which the kernel for samples in turn runs one problem: plain values, chosen on the host (plan.cpp),
// printed by explain(), received by the kernel. Tiles, rows of x, chunks and stages are sm90_onchip's; a tile is what
// one warpgroup holds, so its blocks of 64 channels are `warpgroups` in Tiles' words.
#pragma once

#include "kernels/cuda/sm90_onchip/config.hpp"

namespace convnorm::cuda::sm90_in_turn {

inline constexpr int kColumns = 112;      // of a tile
inline constexpr int kBlocks = 2;         // of 64 channels, of a tile
inline constexpr int kTurns = 3;          // warpgroups that compute, one tile each
inline constexpr int kLoaderWarps = 4;    // of x
inline constexpr int kMemberPlaces = 96;  // words that a warp reads at once, be there as many or not
inline constexpr int kMostTaps = 64;      // whose rows a launch receives

// Domains that are on their way in a CTA at the same time are fewer than this.
inline constexpr int kDomainPlaces = 4;

// A CTA publishes for a domain when its warpgroup is done with the one three tiles before, for which all CTAs had
// published; and these, when theirs were done with one three tiles before that. So others may be five domains behind,
// and words must not be written again sooner.
inline constexpr int kRounds = 8;

struct Config : sm90_onchip::Config {
  int held;                // tiles of a domain in a CTA, at most: columns side by side
  int domain_ctas;         // CTAs side by side along L
  int members;             // CTAs with a part of a group, each of which publishes one word for it, unless it is one
  Divisor member_columns;  // domain_ctas
  int tile_groups;         // that have channels in a tile
  int tile_pieces;         // by warps, of all groups of a tile
  int group_pieces_log2;   // of a group in a tile
  bool resident;           // weights stay: all stages have a slot, and all tiles of a CTA have the same channels
  Divisor weight_ring, x_ring;  // weight_slots, x_slots
};

// Regions and barriers of dynamic shared memory, as byte offsets.
struct SharedPlan : EpilogueRegions {
  int weights;  // weight_slots x [block][tap][k16][part][k8][64 rows][8 channels]
  int block_bytes, stage_bytes;
  int x;  // x_slots x [part][k8][row][8 channels]
  int x_slot_bytes, x_part_bytes;
  int pieces;   // [domain place][held][piece] x {mean, M2} as in Spread
  int moments;  // [domain place][group] x {mean, rstd}

  // Barriers of 8 bytes, side by side in this order. Who arrives: what has then happened.
  int weights_full;  // [weight_slots] the copy engine: the stage is there
  int x_full;        // [x_slots] those that write x: the chunk is there
  int x_empty;       // [x_slots] the warpgroup that had it: its products with the chunk are done
  int turn;          // [kTurns] the warps of the warpgroup before: it may start
  int measured;      // [kDomainPlaces] all warps that hold a tile of the domain: its pieces are there
  int known;         // [kDomainPlaces] those of the last tile: so are its groups' moments
  int prepared;      // the thread that numbers the launch

  int bytes;

  SharedPlan(const Config& c, int element_bytes) {
    block_bytes = c.stage_taps * c.chunk_k16 * c.parts * sm90_onchip::kStepBytes;
    stage_bytes = kBlocks * block_bytes;
    x_part_bytes = 2 * c.chunk_k16 * c.rows() * 16;
    x_slot_bytes = c.parts * x_part_bytes;
    weights = 0;
    x = weights + c.weight_slots * stage_bytes;
    lay_out(c, 0, element_bytes, 0);  // for the sizes
    statistics = x + c.x_slots * x_slot_bytes;
    rows = statistics + kTurns * kBlocks * statistics_bytes;
    staging = rows + kTurns * kBlocks * kBlockRows * 16;
    pieces = staging + 4 * kTurns * staging_bytes;
    moments = pieces + kDomainPlaces * c.held * c.tile_pieces * 8;
    first_tag = moments + kDomainPlaces * c.tile_groups * 8;
    outputs = tasks = first_tag;  // there are none
    weights_full = first_tag + 8;
    x_full = weights_full + 8 * c.weight_slots;
    x_empty = x_full + 8 * c.x_slots;
    turn = x_empty + 8 * c.x_slots;
    measured = turn + 8 * kTurns;
    known = measured + 8 * kDomainPlaces;
    prepared = known + 8 * kDomainPlaces;
    bytes = prepared + 8;
  }
};

}  // namespace convnorm::cuda::sm90_in_turn
