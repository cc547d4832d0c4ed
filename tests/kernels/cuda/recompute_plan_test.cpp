// What the planner of the recomputing kernels decides, on any machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/limits.hpp"
#include "kernels/cuda/planning.hpp"
#include "kernels/cuda/recompute/plan.hpp"

namespace convnorm::cuda::test {
namespace {

using namespace recompute;
using testing::HasSubstr;

std::variant<Config, std::string> plan(const std::string& line) {
  const Problem problem = parse_problem(line);
  return choose_config(problem, Sizes(problem), h200());
}

Config config(const std::string& line) { return accepted(line, plan(line)); }

std::string refusal(const std::string& line) { return refusal_of(plan(line)); }

TEST(RecomputePlan, SharesAPlaceWithinASectorAmongTheRowsOfABlock) {
  EXPECT_EQ(config("n=8,c=1,l=160000,o=512,k=10,s=5,g=512,post=gelu").classes, 8);  // 31,999 positions
  EXPECT_EQ(config("n=8,c=1,l=160000,o=512,k=10,s=5,g=512,dtype=bf16").classes, 16);
  EXPECT_EQ(config("n=4,c=2,l=48000,o=32,k=7,p=3,g=1").classes, 1);
  EXPECT_EQ(config("n=1,c=1,l=1004,o=64,k=3,p=1,g=4").classes, 2);
}

TEST(RecomputePlan, PairsColumnsSoThatFewStayEmpty) {
  EXPECT_EQ(config("n=8,c=1,l=160000,o=512,k=10,s=5,g=512,post=gelu").k16, 2);  // 3 x 5 pairs
  EXPECT_EQ(config("n=8,c=1,l=160000,o=512,k=10,s=5,g=512,post=gelu,dtype=f16").k16, 1);
  // Instances of these depths are for a GELU alone.
  EXPECT_EQ(config("n=8,c=1,l=160000,o=512,k=10,s=5,g=512,post=silu").k16, 3);
  EXPECT_EQ(config("n=8,c=1,l=160000,o=512,k=10,s=5,g=512,dtype=f16").k16, 2);
  EXPECT_EQ(config("n=4,c=2,l=48000,o=32,k=7,p=3,g=1").k16, 3);  // 3 x 7
  EXPECT_TRUE(config("n=4,c=2,l=48000,o=32,k=7,p=3,g=1").pairs_of_channels);
  EXPECT_EQ(config("n=16,c=20,l=1536,o=512,k=3,s=3,p=1,g=256").k16, 12);  // 3 x 30
}

TEST(RecomputePlan, OccupiesTheGpu) {
  for (const char* line : {"n=8,c=1,l=160000,o=512,k=10,s=5,g=512", "n=1,c=1,l=160000,o=512,k=10,s=5,g=512",
                           "n=4,c=2,l=48000,o=32,k=7,p=3,g=1", "n=16,c=20,l=1536,o=512,k=3,s=3,p=1,g=256"}) {
    EXPECT_GE(config(line).grid(), 132) << line;
  }
}

// What the kernel relies on.
TEST(RecomputePlan, HoldsWhatTheKernelAssumes) {
  for (const int64_t n : {1, 3, 200}) {
    for (const int64_t l : {70, 515, 6001, 160000, 10'000'000}) {
      for (const int64_t o : {16, 24, 96, 512}) {
        for (const char* conv : {"c=1,k=10,s=5", "c=2,k=7,p=3", "c=20,k=3,s=3", "c=4,k=3,cg=2", "c=1,k=4,s=2,dtype=f16",
                                 "c=1,k=5,d=3,layout=nlc", "c=1,k=3,post=glu", "c=3,k=1"}) {
          for (const int64_t groups : {int64_t{0}, int64_t{1}, o / 8, o / 2, o}) {
            const Problem p = parse_problem(fmt::format("n={},l={},o={},g={},{}", n, l, o, groups, conv));
            const Sizes sizes(p);
            for (const DeviceLimits& device : {h200(), rtx_3090()}) {
              const auto answer = choose_config(p, sizes, device);
              if (!std::holds_alternative<Config>(answer)) continue;
              const Config& c = std::get<Config>(answer);
              const std::string line = print_problem(p);
              const auto element = static_cast<int>(element_size(p.dtype));
              const int64_t channels = has_post(p, CONVNORM_GLU) ? sizes.c_y : sizes.o_per_conv_group;
              // Every channel has one row.
              std::set<int> held;
              for (int block = 0; block < c.blocks(); ++block) {
                for (int row = 0; row < c.block_channels; ++row) {
                  const int channel = c.channel_of(block, row);
                  if (channel >= c.end_of(block, static_cast<int>(channels))) continue;
                  EXPECT_TRUE(held.insert(channel).second) << line << ": " << channel;
                  const int gates = has_post(p, CONVNORM_GLU) ? static_cast<int>(channels) : 0;
                  EXPECT_EQ(c.row_of(channel, gates), block * kBlockRows + row) << line;
                }
              }
              EXPECT_EQ(held.size(), static_cast<size_t>(channels)) << line;
              // Rows of a block start at one place within a sector; sets hold whole groups; positions are all taken.
              EXPECT_EQ(p.layout == CONVNORM_NCL ? c.classes * sizes.l_out * element % kSectorBytes : 0, 0) << line;
              EXPECT_GE(int64_t{c.sets} * c.set_blocks, c.blocks()) << line;
              if (sizes.o_per_norm_group > 1 && c.sets > 1) {
                EXPECT_EQ(c.range % sizes.o_per_norm_group, 0) << line;
                EXPECT_EQ(c.set_blocks % c.range_blocks(), 0) << line;
              }
              EXPECT_GE(c.team * c.share(), sizes.l_out + (c.classes > 1 ? kSectorBytes / element - 1 : 0)) << line;
              EXPECT_GE(int64_t{c.rounds} * c.teams, p.n * p.conv_groups * c.sets) << line;
              EXPECT_LE(c.grid(), kPerSm * device.sm_count) << line;
              EXPECT_LE(shared_plan(c, sizes.c_per_conv_group, element).bytes,
                        device.shared_per_sm / kPerSm - kReservedBytes)
                  << line;
              EXPECT_GE(8 * c.k16, c.products() * c.pairs) << line;
            }
          }
        }
      }
    }
  }
}

TEST(RecomputePlan, ExchangesNothingWithoutANorm) {
  EXPECT_EQ(config("n=1,c=1,l=160000,o=512,k=10,s=5,g=0").words(), 0);
  EXPECT_GT(config("n=1,c=1,l=160000,o=512,k=10,s=5,g=512").words(), 0);
}

TEST(RecomputePlan, RefusesWithAReason) {
  EXPECT_THAT(refusal("n=1,c=1,l=6001,o=64,k=10,s=5,g=64,pre=relu"), HasSubstr("before the norm"));
  EXPECT_THAT(refusal("n=1,c=1,l=6001,o=64,k=10,s=5,g=64,precision=highest"), HasSubstr("precision=highest"));
  EXPECT_THAT(refusal("n=1,c=64,l=6001,o=64,k=3,g=64"), HasSubstr("192 products"));
  EXPECT_THAT(refusal("n=1,c=4,l=600,o=96,k=3,cg=2,g=6,post=glu"), HasSubstr("glu"));
  EXPECT_THAT(refusal("n=1,c=4,l=600,o=96,k=3,cg=2,g=1"), HasSubstr("span conv groups"));
}

}  // namespace
}  // namespace convnorm::cuda::test
