// What the depthwise kernel's planner decides, on any machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/depthwise/plan.hpp"
#include "kernels/cuda/limits.hpp"

namespace convnorm::cuda::test {
namespace {

using namespace depthwise;
using testing::HasSubstr;

std::variant<Config, std::string> plan(const std::string& line, const DeviceLimits& gpu = h200()) {
  const Problem problem = parse_problem(line);
  return choose_config(problem, Sizes(problem), gpu);
}

Config config(const std::string& line, const DeviceLimits& gpu = h200()) { return accepted(line, plan(line, gpu)); }

std::string refusal(const std::string& line) { return refusal_of(plan(line)); }

TEST(Depthwise, KeepsADomainOnChipWhereOneFits) {
  const Config c = config("n=4,c=512,l=3200,o=512,k=3,d=128,p=128,cg=512,g=1,bias=1,post=relu");
  EXPECT_EQ(c.walk, Walk::kSteps);
  EXPECT_EQ(c.batches, 1);
  EXPECT_EQ(c.rounds, 1);
  EXPECT_EQ(c.held, 8);
  EXPECT_EQ(c.grid(), 256);
  // Twelve samples go domain after domain, each still on chip.
  const Config more = config("n=12,c=512,l=3200,o=512,k=3,d=128,p=128,cg=512,g=1");
  EXPECT_EQ(more.batches, 1);
  EXPECT_EQ(more.rounds, 3);
}

TEST(Depthwise, KeepsARowWithItsWarpWhereVectorsWalk) {
  const auto resident = [](const char* line) { return config(line).resident; };
  EXPECT_TRUE(resident("n=4,c=512,l=3200,o=512,k=3,d=128,p=128,cg=512,g=1"));
  EXPECT_TRUE(resident("n=12,c=512,l=3200,o=512,k=3,d=8,p=8,cg=512,g=1,dtype=bf16"));
  EXPECT_TRUE(resident("n=1,c=512,l=3200,o=512,k=3,d=128,p=128,cg=512,g=1"));    // in pieces
  EXPECT_FALSE(resident("n=1,c=512,l=70001,o=512,k=3,d=4,p=4,cg=512,g=1"));      // not on chip
  EXPECT_FALSE(resident("n=8,c=1024,l=200,o=1024,k=3,d=8,p=8,cg=1024,g=1024"));  // several domains a CTA
  EXPECT_FALSE(resident("n=4,c=512,l=3200,o=512,k=3,d=128,p=128,cg=512,g=0"));   // nothing to measure
  EXPECT_FALSE(resident("n=10,c=80,l=400,o=80,k=31,p=15,cg=80,g=1"));
}

TEST(Depthwise, ReadsTwiceWhereADomainExceedsTheChip) {
  EXPECT_GT(config("n=1,c=512,l=70001,o=512,k=3,d=4,p=4,cg=512,g=1").batches, 1);
}

TEST(Depthwise, PutsSmallDomainsIntoOneCta) {
  const Config c = config("n=8,c=1024,l=200,o=1024,k=7,p=3,cg=1024,g=1024");
  EXPECT_EQ(c.team, 1);
  EXPECT_EQ(c.words(), 0);
  EXPECT_GT(c.domains_per_cta, 1);
}

TEST(Depthwise, WalksAsTheDilationAsks) {
  const auto walk = [](const char* options, int groups = 2) {
    return config(fmt::format("n=1,c=8,l=1999,o=8,cg=8,g={},{}", groups, options)).walk;
  };
  EXPECT_EQ(walk("k=3,d=256"), Walk::kSteps);
  EXPECT_EQ(walk("k=3,d=12"), Walk::kVectors);
  EXPECT_EQ(walk("k=5,d=256"), Walk::kVectors);   // of rows that stay with their warps
  EXPECT_EQ(walk("k=5,d=256", 0), Walk::kSteps);  // of others
  EXPECT_EQ(walk("k=3,d=8"), Walk::kSteps);       // lanes in pairs
  EXPECT_EQ(walk("k=3,d=8,dtype=f16"), Walk::kSteps);
  EXPECT_EQ(walk("k=3,d=256,dtype=f16"), Walk::kVectors);  // in order
  EXPECT_EQ(walk("k=31"), Walk::kWindow);
  EXPECT_EQ(walk("k=1,d=3"), Walk::kWindow);
  EXPECT_EQ(walk("k=3,d=3"), Walk::kScalars);
  EXPECT_EQ(walk("k=3,s=2"), Walk::kScalars);
}

// What the kernel relies on.
TEST(Depthwise, HoldsWhatTheKernelAssumes) {
  for (const DeviceLimits& gpu : {h200(), rtx_3090()}) {
    for (const int64_t n : {1, 3, 40}) {
      for (const int64_t c : {1, 6, 96, 512}) {
        for (const int64_t l : {1, 5, 127, 400, 3200, 100000}) {
          for (const int64_t groups : {0, 1, 2, 6}) {
            for (const char* conv :
                 {"k=3,p=1", "k=31,p=15", "k=3,d=128,p=128", "k=5,s=4,p=2", "k=3,d=8,p=8,dtype=f16"}) {
              if (groups > 0 && c % groups != 0) continue;
              const Problem p =
                  parse_problem(fmt::format("n={},c={},l={},o={},cg={},g={},{}", n, c, l, c, c, groups, conv));
              const auto answer = choose_config(p, Sizes(p), gpu);
              if (!std::holds_alternative<Config>(answer)) continue;
              const Config& k = std::get<Config>(answer);
              const std::string line = print_problem(p);
              const auto element = static_cast<int>(element_size(p.dtype));
              EXPECT_LE(2 * (shared_plan(k, p.k, element).bytes + 1024), gpu.shared_per_sm) << line;
              EXPECT_LE(k.grid(), 2 * gpu.sm_count) << line;  // all of them run at the same time
              EXPECT_GE(int64_t{k.piece} * k.pieces, Sizes(p).l_out) << line;
              EXPECT_TRUE(k.pieces == 1 || k.piece % kBlock == 0) << line;
              EXPECT_GE(int64_t{k.held} * k.batches * k.team, k.jobs_at_once()) << line;
              EXPECT_GE(int64_t{k.rounds} * k.teams * k.domains_per_cta, k.domains) << line;
              EXPECT_TRUE(k.team == 1 || k.domains_per_cta == 1) << line;
              EXPECT_TRUE(k.domains_per_cta == 1 || k.batches == 1) << line;
              if (k.resident) {
                EXPECT_EQ(k.batches, 1) << line;
                EXPECT_EQ(k.domains_per_cta, 1) << line;
                EXPECT_EQ(k.held, k.share) << line;
                EXPECT_LE(k.held, kMostHeld) << line;
                // Outputs, which are fp32, take the place of inputs that nobody needs any more: the last one of a
                // piece ends before it would overtake the inputs under it.
                const int last_shift = kSectorBytes / element - 1;
                if (element < 4) {
                  EXPECT_GE(k.x_at, last_shift + k.piece) << line;
                }
                EXPECT_GE(k.row_elements, k.x_at + last_shift + k.piece - 1 + Sizes(p).k_span) << line;
                EXPECT_EQ(p.stride, 1) << line;
                EXPECT_GT(p.groups, 0) << line;
                if (k.walk == Walk::kSteps) {
                  EXPECT_EQ(p.k, kFewTaps) << line;
                  EXPECT_EQ(4 << k.lanes, std::min<int64_t>(p.dilation, kBlock)) << line;
                }
              }
            }
          }
        }
      }
    }
  }
}

// 2112 rows of half of what 32 bits count: none is cut into pieces for want of work.
TEST(Depthwise, CutsRowsThat32BitsDoNotCountTwice) {
  for (const char* line : {"n=2112,c=2,l=536870912,o=2,k=3,d=4,p=4,cg=2,g=2,dtype=f16",
                           "n=1056,c=2,l=1000000000,o=2,k=3,d=4,p=4,cg=2,g=2"}) {
    const Config c = config(line);
    EXPECT_GT(c.pieces, 1000) << line;
    EXPECT_LE(2 * (shared_plan(c, 3, static_cast<int>(element_size(parse_problem(line).dtype))).bytes + 1024),
              h200().shared_per_sm)
        << line;
  }
}

TEST(Depthwise, RefusesWithAReason) {
  EXPECT_THAT(refusal("n=1,c=8,l=99,o=8,k=3,cg=4,g=2"), HasSubstr("cg=4"));
  EXPECT_THAT(refusal("n=1,c=8,l=99,o=8,k=3,cg=8,g=2,layout=nlc"), HasSubstr("nlc"));
  EXPECT_THAT(refusal("n=1,c=8,l=99,o=8,k=3,cg=8,g=2,post=glu"), HasSubstr("glu"));
  EXPECT_THAT(refusal("n=1,c=1,l=99,o=8,k=3,g=2"), HasSubstr("c=1"));
  EXPECT_THAT(refusal("n=1,c=2,l=100001,o=2,k=1001,d=100,cg=2,g=2"), HasSubstr("shared memory"));
  DeviceLimits old = rtx_3090();
  old.major = 7, old.minor = 5;
  EXPECT_THAT(std::get<std::string>(plan("n=1,c=8,l=99,o=8,k=3,cg=8,g=2", old)), HasSubstr("sm_75"));
}

}  // namespace
}  // namespace convnorm::cuda::test
