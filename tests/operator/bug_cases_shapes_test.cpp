#include <gmock/gmock.h>

#include "bug_case.hpp"

namespace convnorm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The sentence that convnorm_plan_create gives for a problem that breaks a rule.
std::string refusal(const Problem& problem) {
  convnorm_plan* plan = nullptr;
  EXPECT_EQ(convnorm_plan_create(&problem, nullptr, &plan), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
  return convnorm_last_error();
}

template <class Change>
std::string refusal_of(const char* line, const Change& change) {
  Problem p = parse_problem(line);
  change(p);
  return refusal(p);
}

TEST(BugCases, B024_LongKernelInConvGroups) {
  const Inputs in = make_inputs("n=1,c=32,l=150,o=32,k=128,p=64,cg=4,g=4,bias=1");
  EXPECT_EQ(in.sizes.l_out, 151);
  expect_numbers(in, {.first = 0.370855, .last = -0.295812, .sum = 37.87595, .squares = 6318.85379});
}

TEST(BugCases, B026_LastChannelOfTwoConvGroups) {
  Inputs in = make_inputs("n=1,c=4,l=1,o=16,k=1,cg=2,g=1,affine=0");
  in.x = {0, 0, 0, 1};
  in.w.assign(in.w.size(), 1.0f);
  std::vector<double> want(16, -0.99998);
  std::fill(want.begin() + 8, want.end(), 0.99998);
  expect_everywhere(in, want);
}

TEST(BugCases, B027_SamePaddingOfAnEvenKernel) {
  Inputs even = make_inputs("n=1,c=1,l=5,o=1,k=4,p=same,g=1,affine=0");
  even.x = {1, 2, 3, 4, 5}, even.w = {1, 10, 100, 1000};
  expect_everywhere(even, {0.237386, 0.766977, 1.296567, -1.033917, -1.267013});
  Inputs dilated = make_inputs("n=1,c=1,l=5,o=1,k=2,d=3,p=same,g=1,affine=0");
  dilated.x = even.x, dilated.w = {1, 10};
  expect_everywhere(dilated, {0.203595, 0.763480, 1.323365, -1.170669, -1.119771});
  Problem p;
  EXPECT_NE(convnorm_problem_parse("n=1,c=1,l=5,o=1,k=4,s=2,p=same,g=1", &p), CONVNORM_OK) << "no rule for a stride";
}

TEST(BugCases, B028_NoGroupsMeansNoNorm) {
  const Inputs in = make_inputs("n=4,c=6,l=5,o=2,k=1,g=0");
  EXPECT_EQ(check_every_path(in), "");
}

TEST(BugCases, B029_GroupsThatAreNegativeOrTooMany) {
  for (const int64_t groups : {-1, -4, 8}) {
    EXPECT_THAT(refusal_of("n=1,c=4,l=8,o=4,k=1,g=1", [&](Problem& p) { p.groups = groups; }),
                HasSubstr(fmt::format("g={}", groups)));
  }
}

TEST(BugCases, B030_GroupsThatDivideTheElementsButNotTheChannels) {
  EXPECT_THAT(refusal_of("n=1,c=4,l=8,o=6,k=1,g=1", [](Problem& p) { p.groups = 4; }),
              AllOf(HasSubstr("g=4"), HasSubstr("o=6")));
}

TEST(BugCases, B031_StrideDilationAndPaddingOutOfRange) {
  const char* line = "n=1,c=1,l=32,o=1,k=3,g=1";
  for (const int64_t bad : {0, -1}) {
    EXPECT_THAT(refusal_of(line, [&](Problem& p) { p.stride = bad; }), HasSubstr(fmt::format("s={}", bad)));
    EXPECT_THAT(refusal_of(line, [&](Problem& p) { p.dilation = bad; }), HasSubstr(fmt::format("d={}", bad)));
  }
  EXPECT_THAT(refusal_of(line, [](Problem& p) { p.pad_left = -1; }), HasSubstr("-1"));
  EXPECT_THAT(refusal_of(line, [](Problem& p) { p.pad_right = -1; }), HasSubstr("-1"));
}

TEST(BugCases, B032_ConvGroupsThatDoNotDivide) {
  EXPECT_THAT(refusal_of("n=5,c=1,l=224,o=2,k=3,g=1", [](Problem& p) { p.conv_groups = 0; }), HasSubstr("cg=0"));
  EXPECT_THAT(refusal_of("n=5,c=4,l=224,o=6,k=3,g=1", [](Problem& p) { p.conv_groups = 3; }),
              AllOf(HasSubstr("cg=3"), HasSubstr("c=4")));
}

TEST(BugCases, B035_KernelLongerThanThePaddedInput) {
  EXPECT_THAT(refusal_of("n=1,c=1,l=3,o=1,k=3,s=2,g=1", [](Problem& p) { p.l = 2; }),
              AllOf(HasSubstr("padded length 2"), HasSubstr("effective kernel 3")));
}

TEST(BugCases, B036_EmptyInputWithPadding) {
  const Inputs in = make_inputs("n=2,c=4,l=0,o=32,k=2,p=1,g=8,bias=1,affine=0");
  ASSERT_EQ(in.sizes.y_elements, 2 * 32);
  const std::vector<double> want = {-1.127322, 1.449415, 0.375774, -0.697866, -1.127322, 1.449415, 0.375774, -0.697866};
  EXPECT_EQ(on_every_path(in, [&](const Outcome& o) { return near({o.y.begin(), o.y.begin() + 8}, want, 2e-5); }), "");
  EXPECT_EQ(check_every_path(in), "");
}

TEST(BugCases, B037_EmptyBatch) {
  const Inputs in = make_inputs("n=0,c=6,l=20,o=8,k=3,p=1,g=4,bias=1");
  EXPECT_EQ(check_every_path(in), "");
}

TEST(BugCases, B038_OneElementPerGroup) {
  const Inputs in = make_inputs("n=2,c=3,l=4,o=6,k=4,g=6,bias=1");
  std::vector<double> want(in.beta.begin(), in.beta.end());
  want.insert(want.end(), in.beta.begin(), in.beta.end());
  expect_everywhere(in, want, 0);
}

TEST(BugCases, B039_F16ChannelsLast) {
  Inputs in = identity_case("n=2,c=6,l=6,o=6,k=1,cg=6,g=6,affine=0,layout=nlc,dtype=f16");
  std::vector<double> want;
  for (int64_t i = 0; i < 72; ++i) {
    // Element i of (N, C, L) is element (n, l, c) of what lies in memory.
    const int64_t n = i / 36, c = i / 6 % 6, l = i % 6;
    in.x[static_cast<size_t>(i)] = static_cast<float>(n * 36 + l * 6 + c);
    want.push_back(std::vector{-1.46385, -0.87831, -0.29277, 0.29277, 0.87831, 1.46385}[static_cast<size_t>(l)]);
  }
  expect_everywhere(in, want);
}

TEST(BugCases, B042_AnyNumberOfChannels) {
  expect_numbers(make_inputs("n=1,c=4,l=16,o=384,k=1,g=32,bias=1"),
                 {.first = 0.252073, .last = -0.975923, .squares = 8088.03566});
  for (const int o : {768, 1152, 2304, 3072}) {
    EXPECT_EQ(check_every_path(make_inputs(fmt::format("n=1,c=4,l=16,o={},k=1,g=32,bias=1", o))), "");
  }
}

// Where a single output is left, stride and dilation may be any number.
TEST(Shapes, StrideAndDilationOfAnySize) {
  for (const char* line :
       {"n=1,c=2,l=9,o=4,k=1,s=9223372036854775807,g=2", "n=1,c=2,l=9,o=4,k=1,s=4611686018427387904,p=0:1,g=2",
        "n=1,c=2,l=1,o=4,k=1,s=7000000000,p=2:2,pad=replicate,g=2", "n=1,c=2,l=9,o=4,k=1,d=4611686018427387904,g=2",
        "n=1,c=2,l=9,o=40,k=2,d=5000,p=5000:0,g=2", "n=1,c=2,l=3,o=4,k=3,d=70000,p=70000,g=2"}) {
    EXPECT_EQ(check_every_path(make_inputs(line)), "") << line;
  }
}

}  // namespace
}  // namespace convnorm::test
