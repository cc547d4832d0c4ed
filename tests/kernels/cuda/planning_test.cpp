// What a plan decides for a GPU, on any machine: plain values in, plain values out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/any_arch/any_arch.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/limits.hpp"
#include "operator/layers.hpp"
#include "plan/plan.hpp"

namespace convnorm::cuda::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Executable> any_arch(const Problem& problem, const DeviceLimits& gpu) {
  Answer answer = consider_any_arch({problem, Sizes(problem), 1, gpu.architecture(), &gpu});
  auto* executable = std::get_if<std::unique_ptr<Executable>>(&answer);
  return executable == nullptr ? nullptr : std::move(*executable);
}

std::string configured(const Executable& executable, const std::string& name) {
  for (const auto& [key, value] : executable.config()) {
    if (key == name) return value;
  }
  return "";
}

TEST(AnyArch, IsLast) { EXPECT_STREQ(implementations().back().name, "any_arch"); }

TEST(AnyArch, TakesEverythingWithinItsWorkspace) {
  std::vector<Problem> problems;
  for (const auto& [name, problem] : convnorm::test::layers()) problems.push_back(problem);
  for (const char* line : {"n=0,c=6,l=20,o=8,k=3,p=1,g=4", "n=2,c=4,l=0,o=32,k=2,p=1,g=8",
                           "n=1000000,c=8,l=1,o=8,k=1,g=8", "n=1,c=64,l=2000000,o=64,k=7,p=3,g=1,post=glu,dtype=f16",
                           "n=1,c=1,l=300000000,o=2,k=3,p=1,g=1,layout=nlc,dtype=bf16,post=glu"}) {
    problems.push_back(parse_problem(line));
  }
  for (const Problem& problem : problems) {
    for (const DeviceLimits& gpu : {h200(), rtx_3090()}) {
      const auto executable = any_arch(problem, gpu);
      ASSERT_NE(executable, nullptr) << print_problem(problem);
      const auto y = static_cast<size_t>(Sizes(problem).y_elements * element_size(problem.dtype));
      EXPECT_LE(executable->workspace_bytes(), y + (size_t{64} << 20)) << print_problem(problem);
    }
  }
}

TEST(AnyArch, ChoosesTilesThatOccupyTheGpu) {
  const auto tile = [](const char* line) { return configured(*any_arch(parse_problem(line), h200()), "tile"); };
  EXPECT_EQ(tile("n=16,c=128,l=1024,o=256,k=3,p=1,g=32"), "128 channels x 64 positions");
  EXPECT_EQ(tile("n=16,c=128,l=1024,o=64,k=3,p=1,g=32"), "64 channels x 64 positions");
  EXPECT_EQ(tile("n=64,c=512,l=16,o=512,k=5,p=2,g=8"), "64 channels x 16 positions");
  EXPECT_EQ(tile("n=1,c=512,l=16,o=512,k=5,p=2,g=8"), "16 channels x 16 positions");
  EXPECT_EQ(tile("n=4,c=512,l=3200,o=512,k=3,p=1,cg=512,g=1"), "1 channels x 256 positions");
}

TEST(AnyArch, ComputesTwiceOnlyWhereOneSampleDoesNotFit) {
  const auto convolutions = [](const char* line) {
    return configured(*any_arch(parse_problem(line), h200()), "convolutions");
  };
  EXPECT_EQ(convolutions("n=1,c=64,l=2000000,o=64,k=7,p=3,g=8"), "1");
  EXPECT_THAT(convolutions("n=1,c=64,l=2000000,o=64,k=7,p=3,g=8,dtype=bf16"), HasSubstr("2"));
}

TEST(Architectures, AreReadAsCMakeWritesThem) {
  const std::vector<BuiltArchitecture> built = parse_architectures("75-real;86,90-virtual,120-real");
  EXPECT_EQ(architectures_text(built), "sm_75, sm_86, compute_86, compute_90, sm_120");
}

TEST(Architectures, RunWhereNvidiaSaysSo) {
  const auto runs = [](const char* list, const DeviceLimits& gpu) {
    return std::ranges::any_of(parse_architectures(list), [&](const auto& each) { return each.runs_on(gpu); });
  };
  EXPECT_TRUE(runs("80-real", rtx_3090()));
  EXPECT_FALSE(runs("89-real", rtx_3090()));
  EXPECT_TRUE(runs("80-virtual", h200()));
  EXPECT_FALSE(runs("80-real", h200()));
  EXPECT_FALSE(runs("100", h200()));
}

TEST(Architectures, B107_AMissingOneIsNamed) {
  try {
    require_code_for(h200(), parse_architectures("75-real;120"));
    FAIL() << "no failure";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), CONVNORM_NO_DEVICE);
    EXPECT_THAT(failure.what(), AllOf(HasSubstr("NVIDIA H200"), HasSubstr("sm_90"), HasSubstr("sm_75, sm_120"),
                                      HasSubstr("CONVNORM_CUDA_ARCHITECTURES=90")));
  }
}

}  // namespace
}  // namespace convnorm::cuda::test
