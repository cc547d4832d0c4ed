// What the planner of samples in turn decides, on any machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/limits.hpp"
#include "kernels/cuda/sm90_in_turn/plan.hpp"
#include "operator/layers.hpp"

namespace convnorm::cuda::test {
namespace {

using sm90_in_turn::choose_config;
using sm90_in_turn::Config;
using sm90_in_turn::SharedPlan;
using sm90_in_turn::Wishes;
using testing::HasSubstr;

std::variant<Config, std::string> plan(const std::string& line, const Wishes& wishes = {}) {
  const Problem problem = parse_problem(line);
  return choose_config(problem, Sizes(problem), h200(), wishes);
}

Config config(const std::string& line, const Wishes& wishes = {}) { return accepted(line, plan(line, wishes)); }

std::string refusal(const std::string& line, const Wishes& wishes = {}) { return refusal_of(plan(line, wishes)); }

void check(const Problem& problem, const Config& c) {
  SCOPED_TRACE(print_problem(problem));
  const Sizes sizes(problem);
  EXPECT_EQ(c.samples, 1);
  EXPECT_GE(c.iterations, 2);
  EXPECT_LE(c.ctas(), h200().sm_count);
  EXPECT_GE(int64_t{c.teams} * c.iterations, c.domains);
  EXPECT_GE(c.held, 1);
  EXPECT_LE(c.held, sm90_in_turn::kTurns);
  EXPECT_GE(c.domain_ctas * c.held, c.column_tiles);
  EXPECT_LT((c.domain_ctas - 1) * c.held, c.column_tiles);  // no CTA of a team is without a tile
  EXPECT_EQ(c.row_tiles % c.domain_row_tiles, 0);
  EXPECT_EQ(c.stage_taps * c.tap_groups, problem.k);
  // The pieces of a group in all tiles of a CTA are one for each lane.
  EXPECT_LE(c.held << c.group_pieces_log2, 32);
  // With room for what a warp reads at once behind the last group's words.
  EXPECT_EQ(c.words, c.members > 1
                         ? sm90_in_turn::kRounds * c.teams * c.tile_groups * c.members + sm90_in_turn::kMemberPlaces
                         : 0);
  // A stage is asked for by who gives its slot back, for the same tile or for the next one.
  EXPECT_LE(c.weight_slots, c.stages_per_block());
  if (c.resident) {
    EXPECT_EQ(c.weight_slots, c.stages_per_block());
    EXPECT_EQ(c.teams % static_cast<int>(c.row_domains.value), 0);
  } else if (c.weight_slots < c.stages_per_block()) {
    EXPECT_GE(c.weight_slots, 3);
  }
  EXPECT_GE(c.x_slots, 2);
  EXPECT_LE(SharedPlan(c, static_cast<int>(element_size(problem.dtype))).bytes, h200().shared_per_block_optin);
}

TEST(Sm90InTurn, PlansHoldWhatTheKernelAssumes) {
  int plans = 0;
  for (const auto& [name, layer] : convnorm::test::layers()) {
    for (const convnorm_dtype dtype : {CONVNORM_F32, CONVNORM_F16, CONVNORM_BF16}) {
      for (const Wishes wishes : {Wishes{}, Wishes{.held = 1}, Wishes{.held = 2}, Wishes{.held = 3},
                                  Wishes{.chunk_k16 = 1}, Wishes{.chunk_k16 = 2}, Wishes{.chunk_k16 = 4}}) {
        Problem problem = layer;
        problem.dtype = dtype;
        const auto answer = choose_config(problem, Sizes(problem), h200(), wishes);
        if (const auto* chosen = std::get_if<Config>(&answer)) {
          check(problem, *chosen);
          ++plans;
        } else {
          EXPECT_FALSE(std::get<std::string>(answer).empty()) << print_problem(problem);
        }
      }
    }
  }
  EXPECT_GT(plans, 100);
}

TEST(Sm90InTurn, HoldsAsFewTilesOfADomainAsTheChipAllows) {
  const std::string longer = "n=4,c=64,l=110000,o=128,k=8,s=4,p=2,g=4,bias=1,post=gelu";
  EXPECT_EQ(config(longer).held, 2);
  EXPECT_THAT(refusal(longer, {.held = 1}), HasSubstr("246 tiles"));
  EXPECT_EQ(config("n=2,c=64,l=160000,o=128,k=8,s=4,p=2,g=4").held, 3);
  EXPECT_THAT(refusal("n=1,c=64,l=180000,o=128,k=8,s=4,p=2,g=4"), HasSubstr("402 tiles"));
}

TEST(Sm90InTurn, KeepsWeightsThatFit) {
  EXPECT_TRUE(config("n=32,c=160,l=860,o=128,k=3,p=1,g=4,dtype=bf16").resident);
  EXPECT_FALSE(config("n=32,c=512,l=860,o=128,k=3,p=1,g=4,dtype=bf16").resident);
  // A team of one row of tiles after the other would need those of both.
  EXPECT_FALSE(config("n=4,c=64,l=7000,o=384,k=1,g=12,dtype=bf16", {.held = 2}).resident);
}

TEST(Sm90InTurn, SaysWhyItRefuses) {
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=0"), HasSubstr("g=0"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=4,layout=nlc"), HasSubstr("nlc"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=4,cg=2"), HasSubstr("cg=2"));
  EXPECT_THAT(refusal("n=8,c=32,l=16,o=8,k=3,g=4"), HasSubstr("short"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=4,post=glu"), HasSubstr("glu"));
  EXPECT_THAT(refusal("n=1,c=32,l=640,o=8,k=3,g=4,post=film"), HasSubstr("tensor"));
  EXPECT_THAT(refusal("n=2,c=8,l=640,o=8,k=3,g=4,lengths=1"), HasSubstr("lengths"));
  EXPECT_THAT(refusal("n=4,c=512,l=1700,o=1024,k=8,s=4,g=4"), HasSubstr("one domain"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=65,g=4"), HasSubstr("taps"));
  EXPECT_THAT(refusal("n=1,c=32,l=640,o=96,k=3,g=2"), HasSubstr("48 channels"));
  EXPECT_THAT(refusal("n=1,c=32,l=640,o=128,k=3,g=2,precision=highest"), HasSubstr("precision"));
  const Problem problem = parse_problem("n=1,c=8,l=640,o=8,k=3,g=4");
  EXPECT_THAT(std::get<std::string>(choose_config(problem, Sizes(problem), rtx_3090())), HasSubstr("sm_86"));
}

}  // namespace
}  // namespace convnorm::cuda::test
