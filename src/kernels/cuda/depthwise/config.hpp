// The numbers of one launch, shared by planner and kernel.
//
// A job is a piece of one row (sample, output channel) of y; a warp computes it. The jobs of a domain, which is what
// shares statistics (a sample's norm group), are dealt to the CTAs of a team, `held` at a time each.
#pragma once

#include <cstdint>

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/collective/divisor.hpp"
#include "kernels/cuda/collective/slot.hpp"

namespace convnorm::cuda::depthwise {

inline constexpr int kWarps = 8;    // of a CTA
inline constexpr int kPerSm = 2;    // CTAs: one loads while the other stores
inline constexpr int kBlock = 128;  // positions that a warp takes side by side, four a lane
inline constexpr int kSectorBytes = 32;
inline constexpr int kHeadBytes = 48;  // what a CTA keeps of the launch's tag and of its norm, at the start
inline constexpr int kMostHeld = 64;   // jobs of a CTA
inline constexpr int kFewTaps = 3;     // as most dilated convolutions have: without a loop

// How a warp walks along a row.
enum class Walk : int {
  kSteps,    // outputs one dilation apart share their inputs in registers
  kVectors,  // dilation a multiple of 4: every tap is an aligned vector
  kWindow,   // dilation 1: a window of vectors slides along
  kScalars   // any stride and dilation
};

struct Config {
  Walk walk;
  int lanes;         // in steps, this power of two of lanes take neighbouring vectors: a dilation or a block
  int piece;         // positions of a piece: a row's multiple of kBlock, or all of it
  int row_elements;  // that a job holds in shared memory
  int x_at;          // of these, where x starts; outputs of resident rows lie from the start on
  int held;          // jobs that a CTA holds at a time
  bool resident;     // rows stay with their warps from statistics to store
  int batches;       // of jobs that a CTA takes of a domain: 1 if x stays in shared memory between statistics and norm
  int team;          // CTAs that share a domain
  int teams;
  int domains_per_cta;  // at a time; more than 1 only without teams
  int rounds;
  int64_t pieces;        // of a row
  int64_t domains;       // (sample, norm group); (sample, channel) without a norm
  int64_t domain_jobs;   // of one domain
  int64_t share;         // jobs of a team's CTA
  double inverse_piece;  // 1 over its positions
  // All jobs are counted in 32 bits.
  WideDivisor by_team, by_pieces, by_domain_jobs, by_sample_domains, by_multiplier;

  CONVNORM_HOST_DEVICE int grid() const { return team * teams; }
  CONVNORM_HOST_DEVICE int64_t jobs_at_once() const { return domain_jobs * domains_per_cta; }  // of a team
  // Words of a slot: mean and M2 of every CTA, for two rounds in turn.
  CONVNORM_HOST_DEVICE int64_t words() const { return team == 1 ? 0 : int64_t{4} * grid(); }
  // Moments that a CTA keeps: of every job, or of its warps where those add up the jobs of one domain.
  CONVNORM_HOST_DEVICE int own_slots() const { return resident || domains_per_cta > 1 ? held : kWarps; }
};

// A job's numbers of its channel; what the problem has not is 0, gamma 1.
struct ChannelParameters {
  float bias, slope, gamma, beta;
};

// What a warp computes at a time.
struct alignas(16) Job {
  int n, channel;  // of y
  int first;       // position
  int positions;   // of y, up to the end of the piece or row
  int valid;       // of these, with the sample's own outputs
  int length;      // valid inputs of the sample
  int shift;       // elements from the start of a sector to the piece's first output
};

// What a warp finds out about a resident row.
struct alignas(16) RowMoments {
  float sum, squares;  // of distances
  float reference;     // from where they are taken
  int count;           // negative: fp32 does not hold the squares, and a Slot has the moments
};

// The one plan of shared memory; byte offsets.
struct SharedPlan {
  int slots;     // Slot [own_slots]: of one job or warp
  int others;    // Slot [team]
  int barriers;  // uint64_t [held]: of bulk copies of rows
  int moments;   // RowMoments [held]
  int jobs;      // Job [held]
  int channels;  // ChannelParameters [held]
  int weights;   // float [held][K, in vectors of four]
  int rows;      // Element [held][row_bytes]
  int row_bytes;
  int bytes;
};

CONVNORM_HOST_DEVICE inline int round_up(int64_t value, int unit) {
  return static_cast<int>((value + unit - 1) / unit * unit);
}

CONVNORM_HOST_DEVICE inline SharedPlan shared_plan(const Config& c, int64_t taps, int element_bytes) {
  SharedPlan s{};
  s.slots = kHeadBytes;
  s.others = s.slots + c.own_slots() * static_cast<int>(sizeof(Slot));
  s.barriers = s.others + (c.team > 1 ? c.team : 0) * static_cast<int>(sizeof(Slot));
  s.moments = round_up(s.barriers + c.held * static_cast<int>(sizeof(uint64_t)), 16);
  s.jobs = s.moments + c.held * static_cast<int>(sizeof(RowMoments));
  s.channels = round_up(s.jobs + c.held * static_cast<int>(sizeof(Job)), 16);
  s.weights = round_up(s.channels + c.held * static_cast<int>(sizeof(ChannelParameters)), 16);
  s.rows = s.weights + 4 * c.held * round_up(taps, 4);
  s.row_bytes = round_up(int64_t{c.row_elements} * element_bytes, 16);
  s.bytes = s.rows + c.held * s.row_bytes;
  return s;
}

}  // namespace convnorm::cuda::depthwise
