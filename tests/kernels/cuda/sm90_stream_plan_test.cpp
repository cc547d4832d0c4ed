// What the small-L kernel's planner decides, on any machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/limits.hpp"
#include "kernels/cuda/sm90_stream/plan.hpp"

namespace convnorm::cuda::test {
namespace {

using namespace sm90_stream;
using testing::HasSubstr;

std::variant<Config, std::string> plan(const std::string& line, const Wishes& wishes = {}) {
  const Problem problem = parse_problem(line);
  return choose_config(problem, Sizes(problem), h200(), wishes);
}

Config config(const std::string& line, const Wishes& wishes = {}) { return accepted(line, plan(line, wishes)); }

std::string refusal(const std::string& line) { return refusal_of(plan(line)); }

TEST(Sm90Stream, MergesGroupsInAClusterWhereOneHoldsThem) {
  const Config narrow = config("n=1,c=512,l=16,o=512,k=5,p=2,g=8,bias=1,post=mish");
  EXPECT_EQ(narrow.exchange, Exchange::kCluster);
  EXPECT_EQ(narrow.cluster(), 8);  // four tiles a group, two CTAs a tile
  EXPECT_EQ(narrow.grid(), 64);
  const Config wide = config("n=1,c=2048,l=4,o=2048,k=5,p=2,g=8,bias=1,post=mish");
  EXPECT_EQ(wide.exchange, Exchange::kWords);
  EXPECT_EQ(wide.cluster(), 1);
  EXPECT_EQ(wide.grid(), 128);
  EXPECT_EQ(config("n=1,c=512,l=8,o=512,k=1,g=0").exchange, Exchange::kNone);
}

// A cooperative launch of more CTAs than run at the same time would fail.
TEST(Sm90Stream, ExchangesByWordsOnlyAmongCtasThatRunTogether) {
  EXPECT_THAT(refusal("n=1,c=512,l=4,o=4096,k=5,p=2,g=8"), HasSubstr("must all run at the same time"));
  for (const int k_slices : {1, 2, 4, 8}) {
    for (const char* line : {"n=1,c=512,l=16,o=512,k=5,p=2,g=8", "n=2,c=4096,l=4,o=1024,k=5,p=2,g=8",
                             "n=8,c=2048,l=4,o=2048,k=5,p=2,g=8"}) {
      const auto answer = plan(line, {.k_slices = k_slices});
      if (!std::holds_alternative<Config>(answer)) continue;
      const Config& c = std::get<Config>(answer);
      EXPECT_LE(c.cluster(), kMostCluster);
      if (c.exchange == Exchange::kWords) {
        EXPECT_LE(c.grid(), c.cluster() > 2 ? 120 : 132) << line;
      }
    }
  }
}

void expect_what_the_kernel_assumes(const Problem& p, const Config& c) {
  const std::string line = print_problem(p);
  const int positions = 1 << c.positions_log2;
  EXPECT_GE(positions, Sizes(p).l_out) << line;
  EXPECT_GE(c.columns(), positions * c.tile_samples) << line;
  EXPECT_GE(int64_t{c.tile_samples} * c.sample_tiles, p.n) << line;
  EXPECT_GT(p.n, int64_t{c.tile_samples} * (c.sample_tiles - 1)) << line;
  EXPECT_EQ(positions % c.tiles8, 0) << line;  // a lane's columns belong to one sample
  EXPECT_GE(c.unit_rows(), 1) << line;
  EXPECT_GE(kPerLane << c.lanes_per_row_log2(), positions) << line;  // a row's lanes hold all positions
  EXPECT_LE(c.tile_samples << (c.slices_log2 - c.k_slices_log2), kWarps) << line;
  EXPECT_GE(c.slices_log2, c.k_slices_log2) << line;
  EXPECT_GE(int64_t{c.tiles} * c.tile_channels, p.o) << line;
  EXPECT_EQ(c.tiles % c.row_tiles, 0) << line;
  EXPECT_EQ(c.tiles % c.cluster_tiles, 0) << line;
  EXPECT_GE(int64_t{c.blocks_per_warp} * kWarps * c.k_slices(), c.blocks) << line;
  EXPECT_LE(shared_plan(c).ring + kMostRingBytes, h200().shared_per_block_optin) << line;
  if (c.exchange == Exchange::kWords) {
    EXPECT_LE(c.grid(), c.cluster() > 2 ? 120 : 132) << line;
  }
}

// The kernel's arithmetic of places relies on these, whichever tile is taken.
TEST(Sm90Stream, HoldsWhatTheKernelAssumes) {
  std::vector<Wishes> wishes;
  for (const int samples : {0, 1, 2, 4, 8}) {
    for (const bool no_cluster : {false, true}) wishes.push_back({.tile_samples = samples, .no_cluster = no_cluster});
  }
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 37}) {
    for (const int64_t l : {4, 5, 7, 8, 10, 16, 17, 32, 64, 128}) {
      for (const int64_t group : {1, 3, 4, 8, 12, 16, 24, 40, 64, 128}) {
        for (const char* conv : {"k=5,p=2", "k=3,p=1", "k=1", "k=4,s=2,p=1", "k=3,d=2,p=2,pad=reflect"}) {
          const Problem p = parse_problem(fmt::format("n={},c=48,l={},o={},g=4,{}", n, l, 4 * group, conv));
          for (const Wishes& each : wishes) {
            const auto answer = choose_config(p, Sizes(p), h200(), each);
            if (const auto* c = std::get_if<Config>(&answer)) expect_what_the_kernel_assumes(p, *c);
          }
        }
      }
    }
  }
}

// Layers of policies end in a straight line and have instances of their own; what differs from them in a point has not.
TEST(Sm90Stream, KnowsTheLayersOfPolicies) {
  const auto has_instance = [](const Config& c) { return has_instance_of(c.blocks_per_warp, c.parts, c.tiles8); };
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    for (const char* layer : {"c=512,l=16,o=512", "c=512,l=8,o=1024", "c=1024,l=8,o=1024", "c=2048,l=4,o=2048"}) {
      const Problem p = parse_problem(fmt::format("n=1,{},k=5,p=2,g=8,bias=1,post=mish,dtype={}", layer, dtype));
      const Config c = config(print_problem(p));
      EXPECT_TRUE(c.straight(p.l) && c.whole(p.c) && has_instance(c)) << print_problem(p);
    }
  }
  const Config six = config("n=1,c=512,l=16,o=512,k=5,p=2,g=8,precision=highest");
  EXPECT_TRUE(six.straight(16) && six.whole(512) && !has_instance(six));
  EXPECT_FALSE(config("n=1,c=520,l=16,o=512,k=5,p=2,g=8").whole(520));
  EXPECT_FALSE(config("n=1,c=512,l=12,o=512,k=5,p=2,g=8").straight(12));
  EXPECT_FALSE(config("n=1,c=512,l=16,o=96,k=5,p=2,g=8").straight(16));                 // groups of 12 channels
  EXPECT_FALSE(config("n=1,c=512,l=8,o=64,k=5,p=2,g=8", {.k_slices = 1}).straight(8));  // two groups a unit
}

TEST(Sm90Stream, RefusesWithAReason) {
  EXPECT_THAT(refusal("n=1,c=512,l=129,o=512,k=5,p=2,g=8"), HasSubstr("128 columns"));
  EXPECT_THAT(refusal_of(plan("n=4,c=512,l=16,o=512,k=5,p=2,g=8", {.tile_samples = 8})), HasSubstr("8 samples"));
  EXPECT_THAT(refusal("n=1000000,c=32,l=4,o=32,k=5,p=2,g=8"), HasSubstr("125000 tiles"));
  EXPECT_THAT(refusal("n=1,c=512,l=64,o=512,k=5,p=2,g=8,precision=highest"),
              HasSubstr("64 columns with 6 products exceed 32"));
  EXPECT_THAT(refusal("n=1,c=3,l=16,o=64,k=5,p=2,g=8"), HasSubstr("15 weights an output"));
  EXPECT_THAT(refusal("n=1,c=512,l=16,o=512,k=5,p=2,g=8,lengths=1"), HasSubstr("lengths=1"));
  EXPECT_THAT(refusal("n=1,c=512,l=16,o=512,k=5,p=2,g=8,post=glu"), HasSubstr("glu"));
  EXPECT_THAT(refusal("n=1,c=512,l=16,o=512,k=5,p=2,g=8,layout=nlc"), HasSubstr("nlc"));
  EXPECT_THAT(refusal("n=1,c=512,l=16,o=512,k=5,p=2,g=8,cg=2"), HasSubstr("cg=2"));
  EXPECT_THAT(refusal("n=1,c=512,l=4,o=136,k=5,p=2,g=8"), HasSubstr("17 channels"));
  EXPECT_THAT(refusal("n=1,c=32768,l=100000,o=16,k=1,s=1000,g=4"), HasSubstr("3276800000 elements"));
  const Problem problem = parse_problem("n=1,c=512,l=16,o=512,k=5,p=2,g=8");
  EXPECT_THAT(std::get<std::string>(choose_config(problem, Sizes(problem), rtx_3090())), HasSubstr("sm_86"));
}

// Where few products make a sum, halves of fp32 would show in what the norm makes of it.
TEST(Sm90Stream, TakesAsManyProductsAsThePrecisionNeeds) {
  EXPECT_EQ(config("n=1,c=512,l=16,o=512,k=5,p=2,g=8").products(), 3);
  EXPECT_EQ(config("n=1,c=512,l=16,o=512,k=5,p=2,g=8,precision=highest").products(), 6);
  EXPECT_EQ(config("n=1,c=12,l=16,o=512,k=5,p=2,g=8").products(), 6);
  EXPECT_EQ(config("n=1,c=12,l=16,o=512,k=5,p=2,g=8,dtype=f16").products(), 1);
}

TEST(Sm90Stream, PacksSixteenChannelsATileAndABlock) {
  const Problem fp32 = parse_problem("n=1,c=20,l=4,o=24,k=5,p=2,g=3");
  // Two tiles and two blocks of 16, five taps, two 16-bit parts.
  EXPECT_EQ(packed_elements(fp32, config(print_problem(fp32))), 2 * 2 * 5 * 2 * 256);
}

}  // namespace
}  // namespace convnorm::cuda::test
