#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <convnorm/convnorm.hpp>
#include <type_traits>
#include <vector>

#include "kernels/cuda/backend.hpp"
#include "support/fills.hpp"

namespace convnorm::test {
namespace {

using testing::HasSubstr;

template <class Body>
std::string error(convnorm_status status, Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

static_assert(std::is_copy_constructible_v<Problem>);
static_assert(std::is_nothrow_move_constructible_v<Plan> && !std::is_copy_constructible_v<Plan>);
static_assert(std::is_nothrow_move_constructible_v<PackedWeight> && !std::is_copy_constructible_v<PackedWeight>);

TEST(CppApi, ProblemIsAValue) {
  const Problem problem("g=4,n=2,c=6,l=20,o=8,k=3,p=1:1,post=glu");
  EXPECT_EQ(problem.to_string(), "n=2,c=6,l=20,o=8,k=3,p=1,g=4,post=glu");
  EXPECT_EQ(problem, Problem(problem.to_string()));
  EXPECT_EQ(problem.hash(), Problem(problem.to_string()).hash());
  EXPECT_FALSE(problem == Problem("n=2,c=6,l=20,o=8,k=3,p=1,g=4"));
  EXPECT_EQ(problem.output_length(), 20);
  EXPECT_EQ(problem.output_channels(), 4);
  EXPECT_EQ(problem.x_size(), 240u);
  EXPECT_EQ(problem.weight_size(), 144u);
  EXPECT_EQ(problem.y_size(), 160u);
  EXPECT_EQ(problem.channels_at(CONVNORM_GLU), 8);
  EXPECT_EQ(problem.channels_at(CONVNORM_ADD), 4);
}

TEST(CppApi, FailuresAreErrorsWithStatusAndText) {
  EXPECT_THAT(error(CONVNORM_PARSE_ERROR, [] { Problem("n=x"); }), HasSubstr("\"x\""));
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT, [] { Problem(convnorm_problem{}); }), HasSubstr("c=0"));
  const Problem problem("n=1,c=1,l=4,o=1,k=1,g=1");
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT, [&] { Plan(problem, {.path = "none"}); }), HasSubstr("none"));
  if (!cuda::presence().usable) {
    EXPECT_THAT(error(CONVNORM_NO_DEVICE, [&] { Plan(problem, {.device = CONVNORM_CUDA}); }),
                HasSubstr("--device cpu"));
  }
}

TEST(CppApi, APlanForAGpuRefusesTheBuffersOfThisHeader) {
  if (!cuda::presence().usable) GTEST_SKIP() << "no GPU";
  const Plan plan(Problem("n=1,c=1,l=4,o=1,k=1,g=1,affine=0"), {.device = CONVNORM_CUDA});
  const std::vector<float> w = {1};
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT, [&] { plan.pack<float>(w); }), HasSubstr("Plan::get()"));
}

TEST(CppApi, S1_ExecutesWithCheckedSpans) {
  const Plan plan(Problem("n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1"), {.threads = 1, .path = "reference"});
  EXPECT_EQ(plan.path(), "reference");
  const auto x = filled(240, s_fill_x), w = filled(144, s_fill_w), bias = filled(8, s_fill_bias),
             gamma = filled(8, s_fill_gamma), beta = filled(8, s_fill_beta);
  const PackedWeight weight = plan.pack<float>(w);
  AlignedBuffer workspace(plan.workspace_size());
  std::vector<float> y(320);
  plan.execute<float>(weight, {.x = x, .bias = bias, .gamma = gamma, .beta = beta, .y = y}, workspace);
  EXPECT_NEAR(y.front(), -1.535587, 2e-6);
  EXPECT_NEAR(y.back(), 0.255947, 2e-6);

  const std::span<const float> short_x(x.data(), 239);
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT,
                    [&] {
                      plan.execute<float>(weight, {.x = short_x, .bias = bias, .gamma = gamma, .beta = beta, .y = y},
                                          workspace);
                    }),
              testing::AllOf(HasSubstr("x has 239 elements"), HasSubstr("240")));
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT,
                    [&] { plan.execute<float>(weight, {.x = x, .gamma = gamma, .beta = beta, .y = y}, workspace); }),
              HasSubstr("bias is null"));
  EXPECT_THAT(
      error(CONVNORM_INVALID_ARGUMENT,
            [&] { plan.execute<float>(weight, {.x = x, .bias = bias, .gamma = beta, .beta = w, .y = y}, workspace); }),
      HasSubstr("beta has 144 elements"));
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT, [&] { plan.pack<float>(x); }), HasSubstr("weight has 240"));
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT, [&] { plan.pack<float16>(std::span<const float16>()); }),
              HasSubstr("element type"));
}

TEST(CppApi, SlopesComeOneOrOnePerChannel) {
  const Plan plan(Problem("n=1,c=2,l=2,o=2,k=1,cg=2,g=0,pre=prelu"), {.path = "reference"});
  const std::vector<float> x = {-1, -2, -3, -4}, w = {1, 1}, one = {0.5f}, two = {0.5f, 0.25f}, three = {1, 2, 3};
  const PackedWeight weight = plan.pack<float>(w);
  AlignedBuffer workspace(plan.workspace_size());
  std::vector<float> y(4);
  plan.execute<float>(weight, {.x = x, .pre_slope = one, .y = y}, workspace);
  EXPECT_THAT(y, testing::ElementsAre(-0.5, -1, -1.5, -2));
  plan.execute<float>(weight, {.x = x, .pre_slope = two, .y = y}, workspace);
  EXPECT_THAT(y, testing::ElementsAre(-0.5, -1, -0.75, -1));
  EXPECT_THAT(error(CONVNORM_INVALID_ARGUMENT,
                    [&] { plan.execute<float>(weight, {.x = x, .pre_slope = three, .y = y}, workspace); }),
              HasSubstr("pre_slope has 3"));
}

TEST(CppApi, SixteenBitElementsAreTheirBits) {
  const Plan plan(Problem("n=1,c=1,l=2,o=1,k=1,g=0,bias=1,dtype=bf16"), {.path = "reference"});
  constexpr bfloat16 kOne{0x3f80}, kTwo{0x4000}, kThree{0x4040};
  const std::vector<bfloat16> x = {kOne, kTwo}, w = {kOne}, bias = {kOne};
  AlignedBuffer workspace(plan.workspace_size());
  std::vector<bfloat16> y(2);
  plan.execute<bfloat16, bfloat16>(plan.pack<bfloat16>(w), {.x = x, .bias = bias, .y = y}, workspace);
  EXPECT_THAT(y, testing::ElementsAre(kTwo, kThree));
}

TEST(CppApi, ExplainsItself) {
  const Plan plan(Problem("n=1,c=1,l=4,o=1,k=1,g=1"));
  EXPECT_THAT(plan.explain(), HasSubstr(std::string(plan.path())));
  EXPECT_THAT(plan.explain(CONVNORM_JSON), HasSubstr("\"guarantees\""));
  EXPECT_THAT(info(), HasSubstr(std::string(version())));
}

}  // namespace
}  // namespace convnorm::test
