#include <gmock/gmock.h>

#include "bug_case.hpp"

namespace convnorm::test {
namespace {

TEST(BugCases, B045_PaddedBatchWithItsLengths) {
  Inputs alone = make_inputs("n=1,c=2,l=10,o=4,k=3,p=1,g=4");
  alone.problem.affine = 0, alone.gamma.clear(), alone.beta.clear();
  const auto padded = [&](const char* line) {
    Inputs in = make_inputs(line);
    for (size_t c = 0; c < 2; ++c) {
      for (size_t l = 0; l < 20; ++l) in.x[c * 20 + l] = l < 10 ? alone.x[c * 10 + l] : 0;
    }
    return in;
  };
  const auto begins = [](const Inputs& in, const std::vector<double>& want) {
    EXPECT_EQ(on_every_path(in,
                            [&](const Outcome& o) {
                              return near({o.y.begin(), o.y.begin() + 4}, want, 2e-5);
                            }),
              "");
  };
  begins(alone, {-0.81784, 1.34553, -0.14409, -0.99923});
  begins(padded("n=1,c=2,l=20,o=4,k=3,p=1,g=4,affine=0"), {-1.09055, 1.95040, -0.14349, -1.34552});
  Inputs lengths = padded("n=1,c=2,l=20,o=4,k=3,p=1,g=4,affine=0,lengths=1");
  lengths.lengths = {10};
  const std::vector<double> want = evaluate_in_double(alone);
  EXPECT_EQ(on_every_path(lengths,
                          [&](const Outcome& o) -> std::string {
                            for (size_t i = 0; i < o.y.size(); ++i) {
                              const double expected = i % 20 < 10 ? want[i / 20 * 10 + i % 20] : 0;
                              if (!(std::fabs(o.y[i] - expected) <= 2e-5))
                                return fmt::format("element {} is {}", i, o.y[i]);
                            }
                            return "";
                          }),
            "");
}

// A padded sample gives the same bits as alone, whatever lies beyond its end: here NaN.
TEST(BugCases, B045_NothingBeyondALengthIsRead) {
  for (const char* options :
       {"k=3", "k=3,pad=reflect", "k=3,pad=replicate", "k=3,layout=nlc", "k=5,s=2", "k=3,dtype=bf16"}) {
    const Inputs alone = make_inputs(fmt::format("n=1,c=5,l=37,o=18,p=2,g=3,bias=1,{}", options));
    Inputs in = make_inputs(print_problem(alone.problem).replace(0, 3, "n=2") + ",lengths=1");
    in.lengths = {21, 37};
    Inputs first = alone;
    first.problem.l = 21, first.sizes = Sizes(first.problem);
    first.x.clear();
    for (size_t c = 0; c < 5; ++c) {
      first.x.insert(first.x.end(), alone.x.begin() + c * 37, alone.x.begin() + c * 37 + 21);
      for (size_t l = 0; l < 37; ++l) {
        in.x[c * 37 + l] = l < 21 ? alone.x[c * 37 + l] : std::nanf("");
        in.x[(5 + c) * 37 + l] = alone.x[c * 37 + l];
      }
    }
    for (const std::string& target : targets()) {
      for (const std::string& path : paths()) {
        const Request request{.path = path, .target = target};
        const Outcome both = run(in, request), short_one = run(first, request), long_one = run(alone, request);
        ASSERT_EQ(both.fault + short_one.fault + long_one.fault, "") << options;
        if (!both.accepted || !short_one.accepted || !long_one.accepted) continue;
        const size_t row = static_cast<size_t>(in.sizes.l_out), held = static_cast<size_t>(first.sizes.l_out);
        for (size_t c = 0; c < 18; ++c) {
          for (size_t l = 0; l < row; ++l) {
            ASSERT_EQ(both.y[c * row + l], l < held ? short_one.y[c * held + l] : 0.0)
                << path << " on " << target << ", " << options;
            ASSERT_EQ(both.y[(18 + c) * row + l], long_one.y[c * row + l])
                << path << " on " << target << ", " << options;
          }
        }
      }
    }
  }
}

TEST(BugCases, B047_EqualTaps) {
  Inputs in = make_inputs("n=1,c=1,l=4,o=1,k=2,g=1,affine=0");
  in.x = {1, 2, 3, 4}, in.w = {1, 1};
  expect_everywhere(in, {-1.22474, 0, 1.22474});
}

TEST(BugCases, B048_WeightsOfASlice) {
  Inputs in = make_inputs(kS1);
  for (size_t i = 0; i < in.w.size(); ++i)
    in.w[i] = s_fill_w(static_cast<int64_t>(2 * i));  // every second of (8, 6, 6)
  EXPECT_EQ(check_every_path(in, nullptr, 6), "");
}

TEST(BugCases, B050_B055_LengthOne) {
  EXPECT_EQ(check_every_path(identity_case("n=64,c=384,l=1,o=384,k=1,cg=384,g=3,affine=0")), "");
  EXPECT_EQ(check_every_path(make_inputs("n=1,c=16,l=1,o=8,k=1,g=4,bias=1")), "");
  EXPECT_EQ(check_every_path(make_inputs("n=1,c=16,l=1,o=8,k=1,g=4,bias=1,layout=nlc")), "");
}

TEST(BugCases, B051_ChannelsLastKeepsItsLayout) {
  expect_numbers(make_inputs(std::string(kS1) + ",layout=nlc"),
                 {.first = -1.535587, .last = 0.255947, .sum = 67.68076, .squares = 469.16781});
}

TEST(BugCases, B052_OddLengthsAtOddAddresses) {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    for (const int misalignment : {1, 3, 7}) {
      EXPECT_EQ(check_every_path(make_inputs(fmt::format("n=2,c=64,l=100,o=24,k=3,p=1,g=4,bias=1,dtype={}", dtype)),
                                 nullptr, misalignment),
                "");
      EXPECT_EQ(check_every_path(make_inputs(fmt::format(
                                     "n=2,c=100,l=64,o=24,k=4,p=3:0,g=4,layout=nlc,post=silu+add,dtype={}", dtype)),
                                 nullptr, misalignment),
                "");
      EXPECT_EQ(check_every_path(make_inputs(fmt::format("n=2,c=33,l=7,o=48,k=3,p=1,g=4,post=film,dtype={}", dtype)),
                                 nullptr, misalignment),
                "");
    }
  }
}

TEST(BugCases, B053_NothingIsReadPastTheEnd) {
  const std::pair<int, double> cases[] = {{63, 848.90164},   {64, 864.53921},   {65, 823.84621},   {127, 1651.82074},
                                          {128, 1641.79396}, {129, 1701.22509}, {256, 3347.58943}, {257, 3377.77293}};
  for (const auto& [length, squares] : cases) {
    expect_numbers(make_inputs(fmt::format("n=1,c=4,l={},o=8,k=4,p=3:0,g=2,bias=1", length)), {.squares = squares});
  }
}

TEST(BugCases, B057_ParametersOfAnotherType) {
  Inputs in = make_inputs(kS1);
  in.param_dtype = CONVNORM_F16;
  EXPECT_THAT(run(in).fault, testing::HasSubstr("parameters are f32 (0) or of the problem's dtype f32 (0)"));
}

TEST(BugCases, B058_HalfActivationsWithFp32Parameters) {
  for (const char* dtype : {"f16", "bf16"}) {
    const Problem p = parse_problem(fmt::format("{},pre=prelu,post=film+prelu,dtype={}", kS1, dtype));
    for (const convnorm_dtype parameters : {CONVNORM_F32, p.dtype}) {
      // Both forms of the slopes.
      for (const uint64_t seed : {0, 3})
        EXPECT_EQ(check_every_path(make_inputs(p, Fill::s, seed, parameters)), "") << dtype;
    }
  }
}

TEST(BugCases, B061_HalfTypesAccumulateInFp32) {
  for (const char* dtype : {"f16", "bf16"}) {
    const Inputs in = make_inputs(fmt::format("{},post=silu,dtype={}", kS1, dtype));
    expect_numbers(in, {.first = -0.272072, .last = 0.144262, .sum = 123.63855});
  }
}

// A period of seven: the same in every row and at every position.
TEST(BugCases, B062_PatternInEveryChannelAtAReducedLength) {
  for (const int groups : {128, 32}) {
    Inputs in = identity_case(fmt::format("n=1,c=128,l=2002,o=128,k=1,cg=128,g={},affine=0,dtype=bf16", groups));
    std::vector<double> want;
    for (size_t i = 0; i < in.x.size(); ++i) {
      in.x[i] = (static_cast<float>(i % 2002 % 7) - 3) * 0.25f;
      want.push_back(std::vector{-1.49997, -0.99998, -0.49999, 0.0, 0.49999, 0.99998, 1.49997}[i % 2002 % 7]);
    }
    expect_everywhere(in, want, 8e-3);
  }
}

TEST(BugCases, B064_DepthwiseOfAPeriodicSignalAtAReducedLength) {
  Inputs in = make_inputs("n=2,c=64,l=2200,o=64,k=3,p=1,cg=64,g=64,affine=0,dtype=bf16");
  for (size_t i = 0; i < in.w.size(); ++i) in.w[i] = i % 3 == 1 ? 1.0f : 0.0f;
  for (size_t i = 0; i < in.x.size(); ++i) in.x[i] = (static_cast<float>(i % 8) - 3) * 0.25f;
  std::vector<double> want;
  for (size_t i = 0; i < in.x.size(); ++i) want.push_back((in.x[i] - 0.125) / std::sqrt(0.328125 + 1e-5));
  expect_everywhere(in, want, 8e-3);
}

TEST(BugCases, B083_RepeatedCallsHaveTheSameBits) {
  EXPECT_EQ(check_same_bits(make_inputs(std::string(kS1) + ",post=mish+add")), "");
  EXPECT_EQ(check_same_bits(make_inputs("n=3,c=6,l=21,o=8,k=3,p=1,s=2,g=4,bias=1")), "");
}

TEST(BugCases, B108_CausalDepthwiseInBf16) {
  EXPECT_EQ(check_every_path(make_inputs("n=1,c=64,l=32,o=64,k=4,p=3:0,cg=64,g=64,dtype=bf16")), "");
  EXPECT_EQ(check_every_path(make_inputs("n=1,c=64,l=32,o=64,k=4,p=3:0,cg=64,g=0,post=silu,dtype=bf16")), "");
}

}  // namespace
}  // namespace convnorm::test
