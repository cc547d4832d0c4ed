// What the planner of the two passes decides, on any machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/limits.hpp"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/sm90_two_pass/plan.hpp"
#include "operator/layers.hpp"

namespace convnorm::cuda::test {
namespace {

using sm90_two_pass::choose_config;
using sm90_two_pass::Config;
using sm90_two_pass::tiles_of;
using sm90_two_pass::Way;
using sm90_two_pass::Width;
using sm90_two_pass::Wishes;
using sm90_two_pass::WorkspacePlan;
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
  const WorkspacePlan places = workspace_plan(problem, c);
  EXPECT_LE(places.bytes, sizes.y_elements * element_size(problem.dtype) + kWorkspaceAllowance);
  EXPECT_GE(c.at_once, 1);
  EXPECT_LE(c.at_once, problem.n);
  if (c.way == Way::kStore) {
    EXPECT_GE(c.pitch, sizes.l_out);
  }
  EXPECT_GE(c.segments * c.tiles.tile_columns, sizes.l_out);
  EXPECT_EQ(c.tiles.samples, 1);
  EXPECT_FALSE(c.tiles.exchanges());
  // Rows go out by vectors only where all of them start on sectors; z in y has y's alignment.
  if (c.way == Way::kStore && !c.tiles.staged) {
    EXPECT_EQ(c.pitch % 8, 0);
  }
  if (c.in_place) {
    EXPECT_EQ(problem.dtype, CONVNORM_F32);
    EXPECT_EQ(c.pitch, sizes.l_out);
  }
  for (const int64_t samples : {int64_t{1}, c.at_once}) {
    const sm90_onchip::Config tiles = tiles_of(c, samples, h200().sm_count);
    EXPECT_EQ(tiles.domains, samples * tiles.column_tiles * tiles.row_tiles);
    const int per_sm = c.width == Width::kPair ? 2 : 1;
    EXPECT_LE(tiles.teams, per_sm * h200().sm_count);
    EXPECT_GE(int64_t{tiles.teams} * tiles.iterations, tiles.domains);
    const int element = c.way == Way::kStore ? 4 : static_cast<int>(element_size(problem.dtype));
    const int bytes = sm90_onchip::SharedPlan(tiles, element).bytes;
    EXPECT_LE(bytes, h200().shared_per_block_optin);
    EXPECT_LE(per_sm * (bytes + kReservedBytes), h200().shared_per_sm);
  }
}

TEST(Sm90TwoPass, PlansHoldWhatTheKernelsAssume) {
  int plans = 0;
  for (const auto& [name, layer] : convnorm::test::layers()) {
    for (const convnorm_dtype dtype : {CONVNORM_F32, CONVNORM_F16, CONVNORM_BF16}) {
      for (const Wishes wishes : {Wishes{}, Wishes{.width = Width::kTwo}, Wishes{.width = Width::kPair},
                                  Wishes{.way = Way::kStore}, Wishes{.way = Way::kRecompute}}) {
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

TEST(Sm90TwoPass, KeepsZInYWhereItFits) {
  EXPECT_TRUE(config("n=4,c=64,l=110000,o=128,k=8,s=4,p=2,g=4,bias=1,post=gelu", {.way = Way::kStore}).in_place);
  EXPECT_FALSE(
      config("n=4,c=64,l=110000,o=128,k=8,s=4,p=2,g=4,bias=1,post=gelu,dtype=bf16", {.way = Way::kStore}).in_place);
  EXPECT_FALSE(config("n=4,c=96,l=860,o=768,k=1,g=1,bias=1,post=glu").in_place);
}

TEST(Sm90TwoPass, ConvolvesAgainWhereZExceedsTheWorkspace) {
  EXPECT_EQ(config("n=1,c=64,l=2000000,o=64,k=7,p=3,g=8,dtype=bf16").way, Way::kRecompute);
  EXPECT_EQ(config("n=1,c=8,l=20000000,o=64,k=3,p=1,g=1,dtype=f16").way, Way::kRecompute);
  EXPECT_THAT(refusal("n=1,c=64,l=2000000,o=64,k=7,p=3,g=8,dtype=bf16,post=glu"), HasSubstr("workspace"));
}

// A block of 64 channels may have the end of one group and the beginning of the next.
TEST(Sm90TwoPass, HasAPieceForEveryGroupOfABlock) {
  const auto of_block = [](int64_t channels, int64_t groups) {
    return config(fmt::format("n=1,c=4,l=300,o={},k=3,g={}", channels, groups)).of_block;
  };
  EXPECT_EQ(of_block(256, 2), 1);
  EXPECT_EQ(of_block(256, 32), 8);
  EXPECT_EQ(of_block(256, 256), 64);
  for (const int64_t rows : {3, 5, 24, 40, 63, 65, 72, 96, 130}) {
    int most = 0;
    for (int64_t first = 0; first < 8 * rows; first += 64) {
      most = std::max(most, static_cast<int>((first + 63) / rows - first / rows + 1));
    }
    EXPECT_GE(of_block(8 * rows, 8), most) << rows;
  }
}

TEST(Sm90TwoPass, TakesSamplesInTurnsWhereAllOfZDoesNotFit) {
  const Config c = config("n=9,c=512,l=31999,o=512,k=8,s=4,g=1,dtype=bf16", {.way = Way::kStore});
  EXPECT_LT(c.at_once, 9);
  EXPECT_GT(c.at_once, 1);
}

TEST(Sm90TwoPass, SaysWhyItRefuses) {
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=0"), HasSubstr("g=0"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=4,layout=nlc", {.way = Way::kRecompute}), HasSubstr("nlc"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=4,cg=2"), HasSubstr("cg=2"));
  EXPECT_THAT(refusal("n=8,c=8,l=16,o=8,k=3,g=4"), HasSubstr("short"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=4,post=glu", {.way = Way::kRecompute}), HasSubstr("glu"));
  EXPECT_THAT(refusal("n=1,c=8,l=640,o=8,k=3,g=4", {.way = Way::kRecompute}), HasSubstr("f32"));
  const Problem problem = parse_problem("n=1,c=8,l=640,o=8,k=3,g=4");
  EXPECT_THAT(std::get<std::string>(choose_config(problem, Sizes(problem), rtx_3090())), HasSubstr("sm_86"));
}

}  // namespace
}  // namespace convnorm::cuda::test
