#include <algorithm>
#include <limits>

#include "bug_case.hpp"
#include "epilogue/ops.hpp"

namespace convnorm::test {
namespace {

std::vector<double> repeated(const std::vector<double>& period, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = period[i % period.size()];
  return values;
}

TEST(BugCases, B001_EqualValuesGiveZeroAtAReducedLength) {
  Inputs in = identity_case("n=1,c=4,l=5253,o=4,k=1,cg=4,g=4,affine=0");
  for (const auto& [value, limit] : {std::pair{1.0f, 0.0}, {0.1f, 1e-4}, {3.3f, 1e-4}}) {
    std::fill(in.x.begin(), in.x.end(), value);
    expect_everywhere(in, std::vector<double>(in.x.size(), 0.0), limit);
  }
}

TEST(BugCases, B003_MeanFarFromZero) {
  for (const float mean : {1e4f, 1e5f}) {
    Inputs in = make_inputs("n=1,c=1,l=448,o=1,k=1,g=1,bias=1,affine=0");
    in.w = {1}, in.bias = {mean};
    for (size_t l = 0; l < in.x.size(); ++l) in.x[l] = (static_cast<float>(l % 7) - 3) * 0.25f;
    expect_everywhere(in, repeated({-1.49997, -0.99998, -0.49999, 0, 0.49999, 0.99998, 1.49997}, in.x.size()));
  }
}

TEST(BugCases, B005_DeviationsWhoseSquaresOverflow) {
  Inputs in = identity_case("n=1,c=1,l=16,o=1,k=1,g=1,affine=0");
  for (size_t l = 0; l < in.x.size(); ++l) in.x[l] = l % 2 == 0 ? 1e30f : -1e30f;
  expect_everywhere(in, repeated({1, -1}, in.x.size()));
}

TEST(BugCases, B007_OneElementPerGroupIsExactlyBeta) {
  const Inputs plain = identity_case("n=7,c=27,l=1,o=27,k=1,cg=27,g=27,affine=0");
  expect_everywhere(plain, std::vector<double>(7 * 27, 0.0), 0);
  const Inputs affine = identity_case("n=7,c=27,l=1,o=27,k=1,cg=27,g=27");
  expect_everywhere(affine, repeated({affine.beta.begin(), affine.beta.end()}, 7 * 27), 0);
  // The only output of a filter that lies mostly in the padding, far from the bias.
  Inputs dilated = identity_case("n=1,c=8,l=1,o=8,k=3,d=8,p=8,cg=8,g=8,bias=1,affine=0");
  dilated.x.assign(dilated.x.size(), 9.9e9f);
  expect_everywhere(dilated, std::vector<double>(8, 0.0), 0);
}

// Not reported. Sums of such values, and the scales at which small distances are squared, leave fp32's range.
TEST(BugCases, EqualValuesOfAnySizeAreExactlyBeta) {
  for (const char* line : {"n=2,c=16,l=640,o=64,k=1,g=2,affine=0", "n=3,c=16,l=777,o=128,k=1,g=4,affine=0",
                           "n=4,c=32,l=16,o=32,k=1,g=4,affine=0", "n=1,c=256,l=4,o=256,k=1,g=1,affine=0",
                           "n=34,c=8,l=66,o=512,k=1,g=4,affine=0,dtype=bf16", "n=2,c=1,l=4000,o=16,k=1,g=16,affine=0",
                           "n=2,c=16,l=900,o=16,k=1,cg=16,g=1,affine=0"}) {
    for (const float value : {0x1p-100f, 0x1p20f, 0x1p50f, 0x1p100f}) {
      Inputs in = make_inputs(line);
      in.x.assign(in.x.size(), value);
      // One tap of weight 1 for each output.
      const size_t row = in.w.size() / static_cast<size_t>(in.problem.o);
      for (size_t i = 0; i < in.w.size(); ++i) in.w[i] = i % row == i / row % row ? 1.0f : 0.0f;
      expect_everywhere(in, std::vector<double>(static_cast<size_t>(in.problem.n * in.problem.o * in.problem.l), 0), 0);
    }
  }
}

TEST(BugCases, B009_VarianceIsBiased) {
  Inputs in = identity_case("n=1,c=1,l=5,o=1,k=1,g=1,affine=0");
  in.x = {1, 2, 3, 4, 5};
  expect_everywhere(in, {-1.41421, -0.70711, 0, 0.70711, 1.41421});
}

TEST(BugCases, B010_ConvolutionBeyondTheRangeOfF16) {
  Inputs in = make_inputs("n=1,c=64,l=32,o=4,k=3,g=1,affine=0,dtype=f16");
  in.w.assign(in.w.size(), 16.0f);
  for (size_t i = 0; i < in.x.size(); ++i) in.x[i] = 100 + static_cast<float>(i % 32 % 4);
  const std::vector<double> want = repeated({-1.30723, 1.30723, 0.43574, -0.43574}, 30);
  EXPECT_EQ(on_every_path(in, [&](const Outcome& o) { return near({o.y.begin(), o.y.begin() + 30}, want, 2e-3); }), "");
  EXPECT_EQ(check_every_path(in), "");
}

TEST(BugCases, B012_StatisticsOverTheValidLengthOnly) {
  for (const int length : {31, 32, 33, 63, 65}) {
    Inputs in = make_inputs(fmt::format("n=1,c=4,l={},o=8,k=3,p=1,g=4,bias=1,affine=0", length));
    in.bias.assign(8, 5.0f);
    const size_t group = 2 * static_cast<size_t>(length);
    EXPECT_EQ(on_every_path(in,
                            [&](const Outcome& o) -> std::string {
                              for (size_t g = 0; g < 4; ++g) {
                                double sum = 0, squares = 0;
                                for (size_t i = g * group; i < (g + 1) * group; ++i)
                                  sum += o.y[i], squares += o.y[i] * o.y[i];
                                const double mean = sum / static_cast<double>(group);
                                const double variance = squares / static_cast<double>(group) - mean * mean;
                                if (std::fabs(mean) > 1e-5 || std::fabs(variance - 1) > 1e-4) {
                                  return fmt::format("group {} has mean {} and variance {}", g, mean, variance);
                                }
                              }
                              return "";
                            }),
              "");
    EXPECT_EQ(check_every_path(in), "");
  }
}

TEST(BugCases, B013_ThreeChannelsPerGroup) {
  expect_numbers(make_inputs("n=1,c=8,l=40,o=48,k=3,p=1,g=16,bias=1"),
                 {.first = -1.136060, .last = -0.744574, .sum = 74.17582, .squares = 2449.78486});
}

TEST(BugCases, B014_OneGroupIsNotOnePerChannel) {
  expect_numbers(make_inputs("n=2,c=3,l=9,o=4,k=3,p=1,g=1,bias=1,affine=0"), {.first = -1.025464, .last = -0.787862});
  expect_numbers(make_inputs("n=2,c=3,l=9,o=4,k=3,p=1,g=4,bias=1,affine=0"), {.first = -0.410971, .last = -0.460778});
}

TEST(BugCases, B017_TailsOfGelu) {
  struct Tail {
    const char* op;
    std::vector<double> y;
  };
  for (const Tail& tail : {Tail{"gelu", {-4.04969e-3, -1.26685e-4, -1.43326e-6, -5.91953e-9, -4.97677e-15}},
                           Tail{"gelu_tanh", {-3.63739e-3, -7.02459e-5, -2.29180e-7, -8.43965e-11}}}) {
    // The second one has as many channels and positions as every path wants.
    for (const auto& [channels, positions] : {std::pair<size_t, size_t>{5, 9}, {8, 70}}) {
      Inputs in =
          make_inputs(fmt::format("n=1,c=1,l={},o={},k=1,g={},post={}", positions, channels, channels, tail.op));
      in.gamma.assign(channels, 0.0f);
      in.beta = {-3, -4, -5, -6, -8};
      in.beta.resize(channels, -3);
      EXPECT_EQ(on_every_path(in,
                              [&](const Outcome& o) -> std::string {
                                for (size_t i = 0; i < tail.y.size() * positions; ++i) {
                                  const size_t channel = i / positions;
                                  const double want = tail.y[channel];
                                  if (!(std::fabs(o.y[i] - want) <= 1e-3 * std::fabs(want))) {
                                    return fmt::format("{}({}) is {} instead of {}", tail.op, in.beta[channel], o.y[i],
                                                       want);
                                  }
                                }
                                return "";
                              }),
                "");
    }
  }
}

TEST(BugCases, B019_NaNReachesItsSampleAndNoOther) {
  for (const OpInfo& info : kOps) {
    if (info.kind != OpKind::pointwise && info.kind != OpKind::slope) continue;
    const Inputs clean = make_inputs(fmt::format("{},post={}", kS1, info.name));
    Inputs spoilt = clean;
    spoilt.x[5] = std::numeric_limits<float>::quiet_NaN();
    for (const std::string& target : targets()) {
      for (const std::string& path : paths()) {
        const Outcome a = run(clean, {.path = path, .target = target}),
                      b = run(spoilt, {.path = path, .target = target});
        ASSERT_EQ(a.fault + b.fault, "");
        if (!a.accepted) continue;
        const size_t half = a.y.size() / 2;
        EXPECT_TRUE(std::all_of(b.y.begin(), b.y.begin() + half, [](double y) { return std::isnan(y); }))
            << info.name << " by " << path << " on " << target;
        EXPECT_TRUE(
            std::equal(a.bytes.begin() + a.bytes.size() / 2, a.bytes.end(), b.bytes.begin() + b.bytes.size() / 2));
      }
    }
  }
}

TEST(BugCases, B020_ProductsAreFullFp32) {
  Inputs in = make_inputs("n=10,c=96,l=201,o=96,k=3,p=1,g=0");
  for (float& value : in.x) value /= 3;
  for (float& value : in.w) value /= 7;
  expect_everywhere(in, evaluate_in_double(in), 1e-5);
}

TEST(BugCases, B021_EpsilonBelowTheRangeOfF16) {
  Inputs in = identity_case("n=3,c=5,l=5,o=5,k=1,cg=5,g=5,eps=1e-9,affine=0,dtype=f16");
  std::fill(in.x.begin(), in.x.end(), 0.0f);
  expect_everywhere(in, std::vector<double>(in.x.size(), 0.0), 0);
}

TEST(BugCases, B022_LargeScaleAndShift) {
  Inputs in = make_inputs(kS1);
  for (float& value : in.bias) value += 100;
  Inputs plain = in;
  plain.problem.affine = 0;
  plain.gamma.clear(), plain.beta.clear();
  const std::vector<double> want = evaluate_in_double(plain);
  std::fill(in.gamma.begin(), in.gamma.end(), 1e4f);
  std::fill(in.beta.begin(), in.beta.end(), 3e4f);
  EXPECT_EQ(on_every_path(in,
                          [&](const Outcome& o) -> std::string {
                            for (size_t i = 0; i < want.size(); ++i) {
                              const double got = (o.y[i] - 3e4) / 1e4;
                              if (!(std::fabs(got - want[i]) <= 5e-5 * (1 + std::fabs(want[i])))) {
                                return fmt::format("element {} is {} instead of {}", i, got, want[i]);
                              }
                            }
                            return "";
                          }),
            "");
}

TEST(BugCases, B087_SumsThatOverflow) {
  Inputs in = identity_case("n=1,c=1,l=16,o=1,k=1,g=1,affine=0");
  for (size_t l = 0; l < in.x.size(); ++l) in.x[l] = l % 2 == 0 ? 8.0e37f : 8.5e37f;
  expect_everywhere(in, repeated({-1, 1}, in.x.size()));
}

// The reported numbers of the first problem, with each activation they were given for.
TEST(BugCases, S1) {
  const std::string line = kS1;
  expect_numbers(make_inputs(line), {.first = -1.535587, .last = 0.255947, .sum = 67.68076, .squares = 469.16781});
  expect_numbers(make_inputs(line + ",post=relu"), {.sum = 183.42757});
  expect_numbers(make_inputs(line + ",post=silu"), {.first = -0.272072, .last = 0.144262, .sum = 123.63855});
  expect_numbers(make_inputs(line + ",post=gelu"), {.sum = 150.68585});
  expect_numbers(make_inputs(line + ",post=gelu_tanh"), {.sum = 150.67263});
  expect_numbers(make_inputs(line + ",post=mish"), {.sum = 137.66275});
}

}  // namespace
}  // namespace convnorm::test
