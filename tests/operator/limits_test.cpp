// Promises at the edges: tiny eps and tiny signals, and the size of the workspace for any shape and number of threads.
#include <gtest/gtest.h>

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
