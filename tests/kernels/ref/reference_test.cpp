// The reference against numbers worked out by hand or by other programs.
#include <gmock/gmock.h>

#include <thread>

#include "support/case.hpp"

namespace convnorm::test {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr const char* kS1 = "n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1";

std::vector<double> reference(const Case& problem, const convnorm_launch* launch = nullptr, int threads = 0,
                              convnorm_dtype param_dtype = CONVNORM_F32) {
  return problem.run({.threads = threads, .path = "reference"}, launch, param_dtype);
}

// A depthwise convolution with one tap of weight 1: only what follows acts.
Case identity(const std::string& line, std::vector<float> x) {
  Case problem(line);
  problem.x = std::move(x);
  for (float& weight : problem.w) weight = 1;
  return problem;
}

struct Summary {
  const char* line;
  double first, last, sum, squares;  // NaN: not known
};

// What a failing case is called.
void PrintTo(const Summary& known, std::ostream* stream) { *stream << known.line; }

class KnownSums : public testing::TestWithParam<Summary> {};

TEST_P(KnownSums, AreReached) {
  const Summary& known = GetParam();
  const std::vector<double> y = reference(Case(known.line));
  if (!std::isnan(known.first)) {
    EXPECT_NEAR(y.front(), known.first, 1e-6);
  }
  if (!std::isnan(known.last)) {
    EXPECT_NEAR(y.back(), known.last, 1e-6);
  }
  if (!std::isnan(known.sum)) {
    EXPECT_NEAR(sum(y), known.sum, 2e-5);
  }
  if (!std::isnan(known.squares)) {
    EXPECT_NEAR(sum_of_squares(y), known.squares, 2e-5 + 2e-7 * known.squares);
  }
}

constexpr Summary kSummaries[] = {
    {kS1, -1.535587, 0.255947, 67.68076, 469.16781},
    {"n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1,post=relu", NAN, NAN, 183.42757, NAN},
    {"n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1,post=silu", -0.272072, 0.144262, 123.63855, NAN},
    {"n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1,post=gelu", NAN, NAN, 150.68585, NAN},
    {"n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1,post=gelu_tanh", NAN, NAN, 150.67263, NAN},
    {"n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1,post=mish", NAN, NAN, 137.66275, NAN},
    {"n=1,c=8,l=40,o=48,k=3,p=1,g=16,bias=1", -1.136060, -0.744574, 74.17582, 2449.78486},          // B013
    {"n=2,c=3,l=9,o=4,k=3,p=1,g=1,bias=1,affine=0", -1.025464, -0.787862, NAN, NAN},                // B014
    {"n=2,c=3,l=9,o=4,k=3,p=1,g=4,bias=1,affine=0", -0.410971, -0.460778, NAN, NAN},                // B014
    {"n=1,c=32,l=150,o=32,k=128,p=64,cg=4,g=4,bias=1", 0.370855, -0.295812, 37.87595, 6318.85379},  // B024
    {"n=1,c=4,l=16,o=384,k=1,g=32,bias=1", 0.252073, -0.975923, NAN, 8088.03566},                   // B042
    {"n=1,c=4,l=63,o=8,k=4,p=3:0,g=2,bias=1", NAN, NAN, NAN, 848.90164},                            // B053
    {"n=1,c=4,l=257,o=8,k=4,p=3:0,g=2,bias=1", NAN, NAN, NAN, 3377.77293},                          // B053
};
INSTANTIATE_TEST_SUITE_P(S1_B013_B014_B024_B042_B053, KnownSums, testing::ValuesIn(kSummaries));

TEST(Reference, B061_SixteenBitTypesRoundOnlyTheResult) {
  for (const auto& [dtype, epsilon] : {std::pair{"f16", 0x1p-11}, std::pair{"bf16", 0x1p-8}}) {
    const std::string line = std::string(kS1) + ",post=silu";
    expect_near(reference(Case(line + ",dtype=" + dtype)), reference(Case(line)), epsilon);
  }
}

TEST(Reference, B058_ParametersMayHaveTheProblemsType) {
  const Case problem(std::string(kS1) + ",dtype=f16");
  EXPECT_EQ(reference(problem, nullptr, 0, CONVNORM_F16), reference(problem));
}

TEST(Reference, B051_B039_ChannelsLastGivesTheSameValues) {
  EXPECT_EQ(reference(Case(std::string(kS1) + ",layout=nlc,post=add+silu")),
            reference(Case(std::string(kS1) + ",post=add+silu")));
  std::vector<float> x(72);
  // 0..71 as (N=2, L=6, C=6), written here as (N, C, L).
  for (int i = 0; i < 72; ++i) x[static_cast<size_t>(i / 36 * 36 + i % 6 * 6 + i / 6 % 6)] = static_cast<float>(i);
  const auto y = reference(identity("n=2,c=6,l=6,o=6,k=1,cg=6,g=6,affine=0,layout=nlc,dtype=f16", x));
  for (size_t i = 0; i < y.size(); ++i) {
    const double pattern[] = {-1.46385, -0.87831, -0.29277, 0.29277, 0.87831, 1.46385};
    EXPECT_NEAR(y[i], pattern[i % 6], 2e-3);
  }
}

TEST(Reference, B009_VarianceIsBiased) {
  expect_near(reference(identity("n=1,c=1,l=5,o=1,k=1,g=1,affine=0", {1, 2, 3, 4, 5})),
              {-1.41421, -0.70711, 0, 0.70711, 1.41421}, 1e-5);
}

TEST(Reference, B003_MeanFarAboveTheSpread) {
  for (const float offset : {1e4f, 1e5f}) {
    std::vector<float> x(448);
    for (size_t l = 0; l < x.size(); ++l) x[l] = (static_cast<float>(l % 7) - 3) * 0.25f;
    Case problem = identity("n=1,c=1,l=448,o=1,k=1,g=1,affine=0,bias=1", x);
    problem.bias = {offset};
    const auto y = reference(problem);
    const double pattern[] = {-1.49997, -0.99998, -0.49999, 0, 0.49999, 0.99998, 1.49997};
    for (size_t l = 0; l < y.size(); ++l) EXPECT_NEAR(y[l], pattern[l % 7], 2e-5);
  }
}

TEST(Reference, B005_B087_HugeValuesDoNotOverflow) {
  for (const auto& [low, high] : {std::pair{1e30f, -1e30f}, std::pair{8.5e37f, 8.0e37f}}) {
    std::vector<float> x(16);
    for (size_t l = 0; l < x.size(); ++l) x[l] = l % 2 ? high : low;
    const auto y = reference(identity("n=1,c=1,l=16,o=1,k=1,g=1,affine=0", x));
    for (size_t l = 0; l < y.size(); ++l) EXPECT_NEAR(y[l], l % 2 ? -1 : 1, 1e-6);
  }
}

TEST(Reference, B007_B038_OneElementPerGroupIsExactlyBeta) {
  const Case plain = identity("n=7,c=27,l=1,o=27,k=1,cg=27,g=27,affine=0", filled(7 * 27, s_fill_x));
  EXPECT_THAT(reference(plain), Each(0));
  const Case affine = identity("n=7,c=27,l=1,o=27,k=1,cg=27,g=27", filled(7 * 27, s_fill_x));
  const auto y = reference(affine);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<double>(affine.beta[i % 27]));
}

TEST(Reference, B010_ConvolutionMayExceedTheTypeOfY) {
  Case problem("n=1,c=64,l=32,o=4,k=3,g=1,affine=0,dtype=f16");
  for (size_t i = 0; i < problem.x.size(); ++i) problem.x[i] = 100 + static_cast<float>(i % 32 % 4);
  for (float& weight : problem.w) weight = 16;
  const auto y = reference(problem);
  expect_near({y.begin(), y.begin() + 4}, {-1.30723, 1.30723, 0.43574, -0.43574}, 2e-3);
}

TEST(Reference, B019_NanReachesItsSampleAndNoOther) {
  Case problem(std::string(kS1) + ",post=relu");
  const auto clean = reference(problem);
  problem.x[5] = NAN;
  const auto y = reference(problem);
  for (size_t i = 0; i < y.size(); ++i) {
    if (i < y.size() / 2) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else {
      EXPECT_EQ(y[i], clean[i]);
    }
  }
}

TEST(Reference, B021_EpsilonIsNotRoundedToTheTypeOfX) {
  const Case problem =
      identity("n=3,c=5,l=5,o=5,k=1,cg=5,g=5,affine=0,eps=1e-9,dtype=f16", std::vector<float>(75, 0.0f));
  EXPECT_THAT(reference(problem), Each(0));
}

TEST(Reference, B022_LargeScaleAndShift) {
  Case plain(std::string(kS1) + ",affine=0");
  Case scaled(kS1);
  for (float& bias : plain.bias) bias += 100;
  scaled.bias = plain.bias;
  scaled.gamma.assign(8, 1e4f);
  scaled.beta.assign(8, 3e4f);
  const auto expected = reference(plain);
  const auto y = reference(scaled);
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR((y[i] - 3e4) / 1e4, expected[i], 5e-5 * (1 + std::fabs(expected[i])));
  }
}

TEST(Reference, B026_GroupedConvolutionSeesTheLastChannel) {
  Case problem("n=1,c=4,l=1,o=16,k=1,cg=2,g=1,affine=0");
  problem.x = {0, 0, 0, 1};
  for (float& weight : problem.w) weight = 1;
  const auto y = reference(problem);
  for (size_t o = 0; o < 16; ++o) EXPECT_NEAR(y[o], o < 8 ? -0.99998 : 0.99998, 1e-5);
}

TEST(Reference, B027_SamePaddingOfAnEvenKernel) {
  const auto run = [](const std::string& tail, std::vector<float> w) {
    Case problem("n=1,c=1,l=5,o=1,p=same,affine=0," + tail);
    problem.x = {1, 2, 3, 4, 5};
    problem.w = std::move(w);
    return reference(problem);
  };
  EXPECT_THAT(run("k=4,g=0", {1, 10, 100, 1000}), ElementsAre(3210, 4321, 5432, 543, 54));
  expect_near(run("k=4,g=1", {1, 10, 100, 1000}), {0.237386, 0.766977, 1.296567, -1.033917, -1.267013}, 1e-6);
  EXPECT_THAT(run("k=2,d=3,g=0", {1, 10}), ElementsAre(30, 41, 52, 3, 4));
  expect_near(run("k=2,d=3,g=1", {1, 10}), {0.203595, 0.763480, 1.323365, -1.170669, -1.119771}, 1e-6);
}

TEST(Reference, PadsByReflectionAndReplication) {
  const auto run = [](const std::string& pad) {
    Case problem("n=1,c=1,l=4,o=1,k=3,p=2:1,g=0,pad=" + pad);
    problem.x = {1, 2, 3, 4};
    problem.w = {1, 10, 100};
    return reference(problem);
  };
  EXPECT_THAT(run("zeros"), ElementsAre(100, 210, 321, 432, 43));
  EXPECT_THAT(run("reflect"), ElementsAre(123, 212, 321, 432, 343));    // 3 2 | 1 2 3 4 | 3
  EXPECT_THAT(run("replicate"), ElementsAre(111, 211, 321, 432, 443));  // 1 1 | 1 2 3 4 | 4
}

TEST(Reference, B036_EmptyInputWithPaddingIsTheBias) {
  const auto y = reference(Case("n=2,c=4,l=0,o=32,k=2,p=1,g=8,bias=1,affine=0"));
  ASSERT_EQ(y.size(), 64u);
  for (const size_t i : {0u, 4u}) {
    expect_near({y.begin() + static_cast<long>(i), y.begin() + static_cast<long>(i) + 4},
                {-1.127322, 1.449415, 0.375774, -0.697866}, 1e-6);
  }
}

TEST(Reference, B037_EmptyBatch) { EXPECT_TRUE(reference(Case("n=0,c=6,l=20,o=8,k=3,p=1,g=4,bias=1")).empty()); }

TEST(Reference, B045_ASampleWithALengthIsWhatItIsAlone) {
  const std::string tail = ",o=4,k=3,p=1,g=4,affine=0,post=sigmoid";
  for (const char* extra : {"", ",pad=reflect", ",pad=replicate", ",layout=nlc"}) {
    const Case alone("n=1,c=2,l=10" + tail + extra);
    Case batch("n=2,c=2,l=20,lengths=1" + tail + extra);
    batch.lengths = {10, 0};
    if (batch.problem.pad != CONVNORM_ZEROS) batch.lengths[1] = 3;
    batch.x.assign(batch.x.size(), NAN);  // what lies past a length must not be looked at
    for (size_t c = 0; c < 2; ++c) {
      for (size_t l = 0; l < 10; ++l) batch.x[c * 20 + l] = alone.x[c * 10 + l];
      for (size_t l = 0; l < 3; ++l) batch.x[(2 + c) * 20 + l] = 1;
    }
    const auto expected = reference(alone);
    const auto y = reference(batch);
    for (size_t c = 0; c < 4; ++c) {
      for (size_t l = 0; l < 20; ++l) EXPECT_EQ(y[c * 20 + l], l < 10 ? expected[c * 10 + l] : 0.0);
    }
  }
  Case first("n=1,c=2,l=20,o=4,k=3,p=1,g=4,affine=0,lengths=1");
  first.x.assign(first.x.size(), 0);
  for (size_t i = 0; i < 20; ++i) first.x[i / 10 * 20 + i % 10] = s_fill_x(static_cast<int64_t>(i));
  first.lengths = {10};
  const auto y = reference(first);
  expect_near({y[0], y[1], y[2], y[3]}, {-0.81784, 1.34553, -0.14409, -0.99923}, 1e-5);
}

TEST(Reference, PreluBeforeTheNorm) {
  for (const bool per_channel : {false, true}) {
    Case problem = identity("n=1,c=2,l=4,o=2,k=1,cg=2,g=0,pre=prelu", {-4, 2, -2, 1, -4, 2, -2, 1});
    problem.pre_slope = per_channel ? std::vector<float>{0.25f, 0.5f} : std::vector<float>{0.25f};
    const double second = per_channel ? 0.5 : 0.25;
    EXPECT_THAT(reference(problem), ElementsAre(-1, 2, -0.5, 1, -4 * second, 2, -2 * second, 1));
  }
}

TEST(Reference, PostOperationsFollowTheirOrder) {
  Case problem = identity("n=1,c=2,l=2,o=2,k=1,cg=2,g=0,post=film+relu+add", {1, -1, 2, -2});
  problem.film_scale = {2, -1};
  problem.film_shift = {1, 0};
  problem.residual = {10, 20, 30, 40};
  EXPECT_THAT(reference(problem), ElementsAre(13, 20, 30, 42));
}

// The halves of a glu lie in different norm groups, in one, or across a group: each way of pairing them.
TEST(Reference, GluPairsTheHalvesOfTheChannels) {
  for (const char* groups : {"0", "1", "2", "3", "6"}) {
    const std::string line = std::string("n=2,c=3,l=7,o=6,k=3,p=1,bias=1,g=") + groups;
    const auto whole = reference(Case(line));
    Case halved(line + ",post=glu+prelu+film+add");
    const auto y = reference(halved);
    for (size_t n = 0; n < 2; ++n) {
      for (size_t c = 0; c < 3; ++c) {
        for (size_t l = 0; l < 7; ++l) {
          double value = whole[(n * 6 + c) * 7 + l] / (1 + std::exp(-whole[(n * 6 + c + 3) * 7 + l]));
          if (value < 0) value *= static_cast<double>(halved.post_slope[c]);
          value = value * static_cast<double>(halved.film_scale[n * 3 + c]) +
                  static_cast<double>(halved.film_shift[n * 3 + c]) +
                  static_cast<double>(halved.residual[(n * 3 + c) * 7 + l]);
          EXPECT_NEAR(y[(n * 3 + c) * 7 + l], value, 1e-5);
        }
      }
    }
  }
}

TEST(Reference, StrideAndDilation) {
  Case problem("n=1,c=1,l=9,o=1,k=2,s=3,d=2,p=1:2,g=0");
  problem.x = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  problem.w = {1, 10};
  EXPECT_THAT(reference(problem), ElementsAre(20, 53, 86, 9));
}

// The same bits from one thread, from several, and from a pool that works backwards.
TEST(Reference, ThreadsDoNotChangeTheResult) {
  const Case problem(std::string(kS1) + ",post=glu");
  const auto expected = reference(problem, nullptr, 1);
  EXPECT_EQ(reference(problem, nullptr, 3), expected);
  const convnorm_launch backwards{
      .parallel_for = [](void*, int32_t count, void (*body)(void*, int32_t), void* argument) {
        for (int32_t i = count; i-- > 0;) body(argument, i);
      }};
  EXPECT_EQ(reference(problem, &backwards, 5), expected);
  const convnorm_launch threads{.parallel_for = [](void*, int32_t count, void (*body)(void*, int32_t), void* argument) {
    std::vector<std::thread> workers;
    for (int32_t i = 0; i < count; ++i) workers.emplace_back(body, argument, i);
    for (std::thread& worker : workers) worker.join();
  }};
  EXPECT_EQ(reference(problem, &threads, 4), expected);
}

}  // namespace
}  // namespace convnorm::test
