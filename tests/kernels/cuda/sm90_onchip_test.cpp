// The one-wave kernel's planner: what it promises about shared memory, rings and teams holds for every layer, and what
// it refuses it refuses with a reason. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/limits.hpp"
#include "kernels/cuda/sm90_onchip/plan.hpp"
#include "operator/layers.hpp"

namespace convnorm::cuda::test {
namespace {

using sm90_onchip::choose_config;
using sm90_onchip::Config;
using sm90_onchip::SharedPlan;
using sm90_onchip::Wishes;
using testing::HasSubstr;

std::variant<Config, std::string> choose(const Problem& problem, const Wishes& wishes = {}) {
  return choose_config(problem, Sizes(problem), h200(), wishes);
}

std::string reason(const std::string& line) { return refusal_of(choose(parse_problem(line))); }

void check(const Problem& problem, const Config& c) {
  SCOPED_TRACE(print_problem(problem));
  const Sizes sizes(problem);
  const SharedPlan plan(c, static_cast<int>(element_size(problem.dtype)));
  EXPECT_LE(plan.bytes, h200().shared_per_block_optin);
  EXPECT_EQ(plan.x % 16, 0);
  EXPECT_EQ(plan.tasks % 16, 0);
  EXPECT_EQ(plan.staging % 16, 0);
  EXPECT_EQ(plan.weights_full % 8, 0);
  EXPECT_LE(c.ctas(), h200().sm_count);
  EXPECT_GE(int64_t{c.teams} * c.iterations, c.domains);
  // Every channel, tap, channel of y, output and sample belongs to a chunk, a stage, a block, a tile and a domain.
  EXPECT_GE(int64_t{16} * c.chunk_k16 * c.chunks, problem.c);
  EXPECT_GE(int64_t{c.stage_taps} * c.tap_groups, problem.k);
  EXPECT_GE(int64_t{kBlockRows} * c.blocks, problem.o);
  EXPECT_GE(int64_t{c.tile_positions} * c.column_tiles, sizes.l_out);
  EXPECT_GE(int64_t{c.samples} * c.sample_blocks, problem.n);
  EXPECT_EQ(c.samples * c.tile_positions, c.tile_columns);
  // The last tap of the last position reads inside the slot, or the zeros behind it.
  EXPECT_LE(int64_t{problem.stride} * c.phase_rows, c.rows() + c.zeros_behind);
  const int64_t last_input = c.lead + (problem.k - 1) * problem.dilation;
  EXPECT_GE(c.phase_rows, (c.tile_positions + last_input / problem.stride) * c.samples);
  EXPECT_EQ(c.lead, int64_t{c.first_shift} * problem.stride + c.first_phase);
  if (c.raw_rows) {
    // Fours of inputs are the operands of whole rows, or of whole fours of phases.
    EXPECT_EQ((problem.pad_left + c.lead) % 4, 0);
    EXPECT_EQ(c.phase_rows * problem.stride, 4 * static_cast<int64_t>(c.fours.value));
    EXPECT_EQ(c.fours_shift, 0);
    EXPECT_GE(2 * c.parts, element_size(problem.dtype));
  } else {
    EXPECT_EQ(c.lead, 0);
  }
  // Warpgroups side by side own slots of the ring each; one after the other they need all of x.
  if (c.staggered) {
    EXPECT_EQ(c.x_slots, c.chunks);
  } else {
    EXPECT_EQ(c.weight_slots % c.warpgroups, 0);
  }
  // With one slot a warpgroup would wait for a stage that waits for it.
  EXPECT_GE(c.weight_slots, std::min(2, c.stages_per_block()) * (c.staggered ? 1 : c.warpgroups));
  EXPECT_LE(c.x_slots, c.chunks);
  // A group whose rows or columns lie in several tiles lies in one domain.
  if (has_norm(problem)) {
    EXPECT_EQ(c.domain_column_tiles, c.column_tiles);
    const int64_t domain_rows = int64_t{kBlockRows} * c.warpgroups * c.domain_row_tiles;
    EXPECT_TRUE(domain_rows % sizes.o_per_norm_group == 0 || c.row_domains.value == 1);
  }
  if (c.arranged) {
    EXPECT_EQ(c.tile_columns, 64);  // all other instances load x themselves
    EXPECT_FALSE(c.by_warps);
    EXPECT_GT(c.arranged_rows, 0);
    EXPECT_LE(c.arranged_row + c.arranged_rows, c.rows());
    EXPECT_EQ(c.rows() % 8, 0);
    EXPECT_LE(c.zeros_behind, c.arranged_row);  // which are zeros of the next eight channels
    EXPECT_LE(c.arranged_bytes(), sizes.y_elements * element_size(problem.dtype) + (int64_t{64} << 20));
  }
  if (c.shared_blocks) {
    EXPECT_TRUE(c.arranged);
    EXPECT_EQ(c.computing_warpgroups(), 2);
    // A slot never changes hands: its barrier would be two phases behind for the other warpgroup.
    EXPECT_EQ(c.weight_slots % 2, 0);
    EXPECT_GE(c.weight_slots, 4);
    EXPECT_TRUE(c.x_slots == c.chunks || (c.x_slots % 2 == 0 && c.x_slots >= 4));
    EXPECT_EQ(c.iterations, 1);
    EXPECT_GT(c.chunks, 1);
    EXPECT_GE(plan.stage_bytes, c.sums_bytes());
    EXPECT_LE(plan.sums + c.sums_bytes(), plan.x);
  }
}

TEST(Sm90Onchip, PlansHoldWhatTheKernelAssumes) {
  for (const auto& [name, layer] : convnorm::test::layers()) {
    for (const convnorm_dtype dtype : {CONVNORM_F32, CONVNORM_F16, CONVNORM_BF16}) {
      for (const convnorm_precision precision : {CONVNORM_HIGHEST, CONVNORM_HIGH, CONVNORM_MEDIUM}) {
        Problem problem = layer;
        problem.dtype = dtype;
        problem.precision = precision;
        for (const Wishes& wishes :
             {Wishes{}, Wishes{136, 4}, Wishes{128, 4}, Wishes{128, 2}, Wishes{128, 1}, Wishes{64, 2}, Wishes{64, 1},
              Wishes{0, 0, true}, Wishes{128, 2, true}, Wishes{64, 1, true, false}, Wishes{64, 1, true, true},
              Wishes{.tile_columns = 128, .warpgroups = 2, .raw_rows = false}}) {
          const auto answer = choose(problem, wishes);
          if (const auto* config = std::get_if<Config>(&answer)) {
            check(problem, *config);
          } else {
            EXPECT_FALSE(std::get<std::string>(answer).empty());
          }
        }
      }
    }
  }
}

// Groups of three row tiles, of which the last domain has two: a CTA that has nothing to do in it must not run ahead.
TEST(Sm90Onchip, KeepsTeamsOfUnevenDomainsToOnePlaceOfThem) {
  for (const int warpgroups : {4, 2}) {
    const auto answer = choose(parse_problem("n=301,c=8,l=100,o=960,k=1,g=5"), {128, warpgroups});
    const auto& c = std::get<Config>(answer);
    ASSERT_NE(c.row_tiles % c.domain_row_tiles, 0);
    ASSERT_GT(c.iterations, 2);
    EXPECT_EQ(c.teams % static_cast<int>(c.row_domains.value), 0);
    EXPECT_GE(c.teams * c.iterations, c.domains);
  }
}

TEST(Sm90Onchip, FillsTheGpuWithTheLayerThatWasAskedForFirst) {
  const auto answer = choose(parse_problem("n=16,c=128,l=1024,o=256,k=3,p=1,g=32"));
  const auto& c = std::get<Config>(answer);
  EXPECT_EQ(c.warpgroups, 4);
  EXPECT_EQ(c.tile_columns, 128);
  EXPECT_EQ(c.ctas(), 128);
  EXPECT_EQ(c.iterations, 1);
  EXPECT_TRUE(c.staggered);
}

// The next warpgroup may wait for the slot of a stage that nobody has seen yet: its barrier, two phases behind, would
// look as if the next stage were there.
TEST(Sm90Onchip, StartsTheNextWarpgroupHalfwayOnlyWhereItsSlotsAreKnown) {
  const auto halfway = [](const char* line) {
    const auto answer = choose(parse_problem(line));
    const auto& c = std::get<Config>(answer);
    EXPECT_TRUE(c.staggered) << line;
    EXPECT_GT(c.chunks, 1) << line;
    return c.turn_chunk < c.chunks - 1;
  };
  EXPECT_TRUE(halfway("n=16,c=128,l=1024,o=256,k=3,p=1,g=32"));  // 4 stages a block, 6 slots, 3 taken
  EXPECT_FALSE(halfway("n=4,c=128,l=1025,o=512,k=3,p=1,g=1"));   // 4, 5, 3
  EXPECT_FALSE(halfway("n=4,c=96,l=1024,o=512,k=4,p=2,g=1"));    // 6, 8, 4
  EXPECT_FALSE(halfway("n=4,c=384,l=1025,o=512,k=1,g=1,dtype=bf16"));
  EXPECT_FALSE(halfway("n=16,c=128,l=1023,o=256,k=2,p=1,g=1"));
}

// One column more than eight tiles of 128 would take a second round of tiles.
TEST(Sm90Onchip, WidensTilesWhereAnotherOneWouldTakeAnotherRound) {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    const auto answer = choose(parse_problem(std::string("n=16,c=128,l=1025,o=256,k=3,p=1,g=32,dtype=") + dtype));
    const auto& c = std::get<Config>(answer);
    EXPECT_EQ(c.tile_columns, 136) << dtype;
    EXPECT_EQ(c.iterations, 1) << dtype;
    EXPECT_TRUE(c.staged) << dtype;
  }
  EXPECT_THAT(refusal_of(choose(parse_problem("n=16,c=128,l=1025,o=256,k=3,p=1,g=32,pre=relu"), {136, 4})),
              HasSubstr("by warps"));
}

// Of 128 columns there would be 64 tiles, and 20.
TEST(Sm90Onchip, NarrowsTilesWhereThereAreFew) {
  for (const char* line : {"n=1,c=128,l=1000,o=512,k=3,p=1,g=4", "n=1,c=256,l=600,o=256,k=3,p=1,g=4"}) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      const auto answer = choose(parse_problem(std::string(line) + ",dtype=" + dtype));
      const auto& c = std::get<Config>(answer);
      EXPECT_EQ(c.tile_columns, 64) << line << " " << dtype;
      EXPECT_TRUE(c.by_warps);
      EXPECT_TRUE(c.plain_fill);
      EXPECT_EQ(c.x_slots, c.chunks);
    }
  }
  // Three parts have no such epilogue.
  const auto highest = choose(parse_problem("n=1,c=128,l=1000,o=512,k=3,p=1,g=4,precision=highest"), {64, 1});
  EXPECT_FALSE(std::get<Config>(highest).by_warps);
}

TEST(Sm90Onchip, CopiesRowsOfStridesThatArePowersOfTwo) {
  const auto raw = [](const char* line) { return std::get<Config>(choose(parse_problem(line))).raw_rows; };
  EXPECT_TRUE(raw("n=4,c=64,l=1003,o=128,k=4,s=2,p=1,g=4"));
  EXPECT_TRUE(raw("n=4,c=64,l=1002,o=128,k=4,s=8,p=1,g=4,pad=reflect,dtype=f16"));
  EXPECT_FALSE(raw("n=4,c=64,l=1003,o=128,k=4,s=2,p=1,g=4,dtype=f16"));         // rows start on no word
  EXPECT_FALSE(raw("n=4,c=64,l=1003,o=128,k=4,s=2,p=1,g=4,precision=medium"));  // operands are fewer bytes
  EXPECT_FALSE(raw("n=4,c=64,l=1003,o=128,k=4,s=3,p=1,g=4"));
  EXPECT_FALSE(raw("n=4,c=64,l=1003,o=128,k=4,s=2,p=1,g=4,lengths=1"));
}

TEST(Sm90Onchip, GivesPaddedBatchesTheEpilogueByWarps) {
  const auto answer = choose(parse_problem("n=32,c=256,l=860,o=256,k=3,p=1,g=8,lengths=1"));
  EXPECT_TRUE(std::get<Config>(answer).by_warps);
}

// Weights that are taken once need a ring deep enough for the latency of memory more than all of x at a time.
TEST(Sm90Onchip, LeavesRoomForWeightsWhereASingleWarpgroupComputes) {
  const auto answer = choose(parse_problem("n=64,c=512,l=16,o=512,k=5,p=2,g=8"), {64, 1});
  const auto& c = std::get<Config>(answer);
  EXPECT_LT(c.x_slots, c.chunks);
  EXPECT_GE(c.weight_slots, 5);
}

TEST(Sm90Onchip, PutsShortSamplesSideBySide) {
  const auto answer = choose(parse_problem("n=256,c=1024,l=8,o=1024,k=5,p=2,g=8"), {128, 2});
  EXPECT_EQ(std::get<Config>(answer).samples, 16);
}

// Of short samples every tile would load rows that are mostly zeros, for as long as all products take.
TEST(Sm90Onchip, ArrangesXOnceWhereManyTilesWouldLoadIt) {
  const std::string wide = "n=64,c=2048,l=4,o=2048,k=5,p=2,g=8,bias=1,post=mish";
  for (const char* dtype : {",dtype=f32", ",dtype=f16", ",dtype=bf16"}) {
    const auto answer = choose(parse_problem(wide + dtype));
    const auto& c = std::get<Config>(answer);
    EXPECT_TRUE(c.arranged) << dtype;
    EXPECT_EQ(c.samples, 16) << dtype;
    // Zeros beside the four positions of a sample stay in shared memory.
    EXPECT_EQ(c.arranged_row, 2 * 16) << dtype;
    EXPECT_EQ(c.arranged_rows, 4 * 16) << dtype;
    EXPECT_EQ(c.arranged_bytes(), 64 * 4 * 2048 * 2 * c.parts) << dtype;
  }
  EXPECT_FALSE(std::get<Config>(choose(parse_problem("n=16,c=128,l=1024,o=256,k=3,p=1,g=32"))).arranged);
  EXPECT_FALSE(std::get<Config>(choose(parse_problem("n=64,c=2048,l=4,o=64,k=5,p=2,g=8"))).arranged);
}

// Rows that are zeros in one tile are none in the next, or are what the padding repeats.
TEST(Sm90Onchip, ArrangesAllRowsWhereZerosAreNotTheSameInAllTiles) {
  for (const char* line : {"n=64,c=512,l=15,o=512,k=4,s=2,p=3,g=8", "n=64,c=512,l=8,o=512,k=5,p=2,pad=replicate,g=8",
                           "n=64,c=512,l=90,o=512,k=5,p=2,g=8,pre=relu"}) {
    const auto answer = choose(parse_problem(line), {64, 1, true});
    const auto& c = std::get<Config>(answer);
    EXPECT_EQ(c.arranged_row, 0) << line;
    EXPECT_EQ(c.arranged_rows, c.rows()) << line;
  }
}

TEST(Sm90Onchip, SplitsRawSignalsIntoThreeParts) {
  const auto parts = [](const char* line) { return std::get<Config>(choose(parse_problem(line))).parts; };
  EXPECT_EQ(parts("n=1,c=1,l=4000,o=64,k=10,s=5,g=8"), 3);
  EXPECT_EQ(parts("n=1,c=1,l=4000,o=64,k=10,s=5,g=8,precision=medium"), 1);
  EXPECT_EQ(parts("n=1,c=1,l=4000,o=64,k=10,s=5,g=8,dtype=bf16"), 1);
  EXPECT_EQ(parts("n=1,c=64,l=400,o=64,k=3,p=1,g=8"), 2);
  EXPECT_EQ(parts("n=1,c=64,l=400,o=64,k=3,p=1,g=8,precision=highest"), 3);
}

TEST(Sm90Onchip, SaysWhyItRefuses) {
  EXPECT_THAT(reason("n=1,c=8,l=64,o=8,k=3,g=4,layout=nlc"), HasSubstr("nlc"));
  EXPECT_THAT(reason("n=1,c=8,l=64,o=8,k=3,g=4,cg=2"), HasSubstr("cg=2"));
  EXPECT_THAT(reason("n=1,c=8,l=64,o=8,k=3,g=4,post=glu"), HasSubstr("glu"));
  EXPECT_THAT(reason("n=0,c=8,l=64,o=8,k=3,g=4"), HasSubstr("nothing"));
  EXPECT_THAT(reason("n=1,c=64,l=2000000,o=64,k=7,p=3,g=8"), HasSubstr("SMs"));
  EXPECT_THAT(reason("n=1,c=8,l=70000,o=8,k=3,g=4,d=30000"), HasSubstr("rows"));
  const auto cannot = [](const char* line, const Wishes& wishes) {
    return refusal_of(choose(parse_problem(line), wishes));
  };
  EXPECT_THAT(cannot("n=16,c=128,l=1024,o=256,k=3,p=1,g=32", {128, 4, true}), HasSubstr("load x themselves"));
  EXPECT_THAT(cannot("n=64,c=2048,l=4,o=64,k=5,p=2,g=8", {64, 1, true}), HasSubstr("loaded once"));
  EXPECT_THAT(cannot("n=64,c=2048,l=4,o=256,k=5,p=2,g=8", {64, 2, true, true}), HasSubstr("64"));
  const Problem problem = parse_problem("n=1,c=8,l=64,o=8,k=3,g=4");
  EXPECT_THAT(std::get<std::string>(choose_config(problem, Sizes(problem), rtx_3090())), HasSubstr("sm_86"));
}

}  // namespace
}  // namespace convnorm::cuda::test
