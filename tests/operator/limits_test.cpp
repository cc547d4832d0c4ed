// Promises at the edges: tiny eps and tiny signals, and the size of the workspace for any shape and number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/inputs.hpp"
#include "support/runner.hpp"

namespace convnorm::test {
namespace {

TEST(Limits, OneElementPerGroupGivesBetaForAnyEps) {
  const Inputs in = make_inputs("n=1,c=2,l=1,o=4,k=1,g=4,eps=1e-80");
  EXPECT_EQ(on_every_path(in,
                          [&](const Outcome& o) -> std::string {
                            for (size_t i = 0; i < o.y.size(); ++i) {
                              if (static_cast<float>(o.y[i]) != in.beta[i]) return "not beta";
                            }
                            return "";
                          }),
            "");
}

TEST(Limits, SignalsWhoseSquaresVanishInFp32) {
  for (const char* eps : {"1e-52", "1e-60", "1e-70"}) {
    Inputs in = make_inputs(std::string("n=1,c=1,l=16,o=1,k=1,g=1,affine=0,eps=") + eps);
    in.w = {1.0f};
    for (size_t i = 0; i < in.x.size(); ++i) in.x[i] = i % 2 == 0 ? 1e-25f : -1e-25f;
    EXPECT_EQ(check_every_path(in), "") << eps;
  }
}

// Layers as networks have them, for every scheme by which a path takes statistics: short samples, groups over many
// tiles, rows that are no multiple of anything.
constexpr const char* kWide[] = {"n=2,c=64,l=16,o=64,k=3,p=1,g=4,eps=1e-60",  //
                                 "n=1,c=64,l=8,o=128,k=5,p=2,g=2,eps=1e-60",  //
                                 "n=1,c=32,l=4,o=1024,k=5,p=2,g=2,eps=1e-60",
                                 "n=3,c=512,l=7,o=256,k=3,p=1,g=2,eps=1e-60",  //
                                 "n=1,c=32,l=1024,o=64,k=3,p=1,g=2,eps=1e-60",
                                 "n=2,c=32,l=384,o=64,k=3,p=1,g=16,eps=1e-60",
                                 "n=1,c=32,l=1001,o=40,k=3,p=1,g=5,eps=1e-60"};

TEST(Limits, GroupsOfTinyHugeAndOrdinaryValues) {
  for (const char* line : kWide) {
    Inputs in = make_inputs(line, Fill::uniform);
    const int64_t group_weights = in.sizes.o_per_norm_group * in.problem.c * in.problem.k;
    for (size_t i = 0; i < in.w.size(); ++i) {
      constexpr float kFactors[] = {1e-22f, 1e22f, 1.0f};
      in.w[i] *= kFactors[static_cast<int64_t>(i) / group_weights % 3];
    }
    EXPECT_EQ(check_every_path(in), "") << line;
  }
}

TEST(Limits, ChannelsOfOneGroupOfDifferentMagnitude) {
  for (const char* line : kWide) {
    Inputs in = make_inputs(line, Fill::uniform);
    const int64_t weights = in.problem.c * in.problem.k;
    for (size_t i = 0; i < in.w.size(); ++i) in.w[i] *= static_cast<int64_t>(i) / weights % 2 == 0 ? 1e22f : 1e-22f;
    EXPECT_EQ(check_every_path(in), "") << line;
  }
}

TEST(Limits, SilentSamplesAndDeadChannels) {
  for (const char* line : kWide) {
    Inputs in = make_inputs(line, Fill::uniform);
    const int64_t weights = in.problem.c * in.problem.k;
    std::fill(in.x.begin(), in.x.begin() + in.problem.c * in.problem.l, 0.0f);
    std::fill(in.w.begin() + 5 * weights, in.w.begin() + 7 * weights, 0.0f);
    EXPECT_EQ(check_every_path(in), "") << line;
  }
}

// z is exact in fp32 here; its mean is not.
TEST(Limits, BiasesThatAreLargeBesideTheSpread) {
  for (const char* line : kWide) {
    Inputs in = make_inputs(std::string(line) + ",bias=1", Fill::integers);
    for (size_t i = 0; i < in.bias.size(); ++i) in.bias[i] = 1e6f + static_cast<float>(i % 3);
    EXPECT_EQ(check_every_path(in), "") << line;
  }
}

// Planned only: the shapes are too large to run.
TEST(Limits, WorkspaceIsAtMostYAnd64MiB) {
  for (const char* line :
       {"n=10000,c=8,l=1,o=16384,k=1,g=1", "n=4096,c=64,l=1,o=16384,k=1,g=1", "n=1000000,c=8,l=1,o=8,k=1,g=8",
        "n=16,c=128,l=1024,o=256,k=3,p=1,g=32", "n=8,c=1,l=160000,o=512,k=10,s=5,g=512,post=gelu",
        "n=1,c=64,l=2000000,o=64,k=7,p=3,g=8,bias=1,post=silu,dtype=bf16",
        "n=1,c=64,l=2000000,o=64,k=7,p=3,g=1,post=glu"}) {
    const Problem problem = parse_problem(line);
    const Sizes sizes(problem);
    for (const std::string& path : paths()) {
      if (path == "reference") continue;
      for (const int threads : {1, 2, 64, 256, 4096}) {
        convnorm_plan_options options;
        convnorm_plan_options_init(&options);
        options.device = test_device();
        options.path = path.c_str();
        options.threads = threads;
        convnorm_plan* plan = nullptr;
        if (convnorm_plan_create(&problem, &options, &plan) != CONVNORM_OK) continue;
        const int64_t limit = sizes.y_elements * element_size(problem.dtype) + (int64_t{64} << 20) + 256;
        EXPECT_LE(static_cast<int64_t>(convnorm_plan_workspace_size(plan)), limit)
            << line << " " << path << " " << threads;
        convnorm_plan_destroy(plan);
      }
    }
  }
}

}  // namespace
}  // namespace convnorm::test
