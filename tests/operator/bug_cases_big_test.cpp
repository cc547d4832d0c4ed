// Cases that need size: groups of millions of elements, batches beyond 65535.
#include <algorithm>
#include <cmath>
#include <functional>

#include "bug_case.hpp"

namespace convnorm::test {
namespace {

// y as fp32, by the planned path and by each that accepts on the best target.
void for_every_path(const Inputs& in, const std::function<void(const float* y)>& use) {
  std::vector<float> y(static_cast<size_t>(in.sizes.y_elements));
  std::vector<std::string> chosen = paths();
  // The planned one; and no reference, which would take minutes.
  std::erase(chosen, "reference");
  chosen.emplace_back();
  for (const std::string& path : chosen) {
    const Prepared prepared(in, {.path = path, .threads = 2});
    ASSERT_EQ(prepared.fault(), "") << path;
    if (prepared.plan() == nullptr) continue;
    SCOPED_TRACE(convnorm_plan_path(prepared.plan()));
    std::fill(y.begin(), y.end(), std::nanf(""));
    std::vector<std::byte> workspace(prepared.workspace_bytes(), std::byte{0xff});
    ASSERT_EQ(prepared.execute(y.data(), workspace.data()), "");
    use(y.data());
  }
}

double largest_difference(const float* y, size_t count, const std::function<double(size_t)>& want) {
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double difference = std::fabs(y[i] - want(i));
    if (!(difference <= largest)) largest = std::isnan(difference) ? HUGE_VAL : difference;
  }
  return largest;
}

TEST(BigCases, B001_EqualValues) {
  Inputs in = identity_case("n=1,c=32,l=525825,o=32,k=1,cg=32,g=32,affine=0");
  for (const auto& [value, limit] : {std::pair{1.0f, 0.0}, {0.1f, 1e-4}, {3.3f, 1e-4}}) {
    std::fill(in.x.begin(), in.x.end(), value);
    for_every_path(in, [&](const float* y) {
      EXPECT_LE(largest_difference(y, in.x.size(), [](size_t) { return 0.0; }), limit) << value;
    });
  }
}

TEST(BigCases, B002_OneGroupOfFortyMillion) {
  Inputs in = identity_case("n=1,c=8,l=4718592,o=8,k=1,cg=8,g=1,affine=0");
  long double sum = 0, squares = 0;
  for (size_t i = 0; i < in.x.size(); ++i) sum += in.x[i] = static_cast<float>((37 * i + 11) % 101) / 101;
  const auto mean = static_cast<double>(sum / static_cast<long double>(in.x.size()));
  for (const float x : in.x) squares += (x - mean) * (x - mean);
  const double rstd = 1 / std::sqrt(static_cast<double>(squares / static_cast<long double>(in.x.size())) + 1e-5);
  for_every_path(in, [&](const float* y) {
    EXPECT_LE(largest_difference(y, in.x.size(), [&](size_t i) { return (in.x[i] - mean) * rstd; }), 1e-5);
  });
}

// The S fill repeats after 101 positions, and so does the convolution: its moments follow from one period and what is
// left.
TEST(BigCases, B041_GroupsOfAMillionPositions) {
  constexpr size_t kLength = 1048576, kChannels = 64, kPeriod = 101;
  for (const size_t groups : {1, 16}) {
    const Inputs in = make_inputs(fmt::format("n=1,c=64,l=1048576,o=64,k=1,g={},bias=1", groups));
    std::vector<double> z(kChannels * kPeriod);
    for (size_t o = 0; o < kChannels; ++o) {
      for (size_t l = 0; l < kPeriod; ++l) {
        z[o * kPeriod + l] = in.bias[o];
        for (size_t c = 0; c < kChannels; ++c)
          z[o * kPeriod + l] += double{in.w[o * kChannels + c]} * in.x[c * kLength + l];
      }
    }
    const auto times = [](size_t l) { return static_cast<double>(kLength / kPeriod + (l < kLength % kPeriod)); };
    const size_t rows = kChannels / groups;
    std::vector<double> mean(groups), rstd(groups);
    for (size_t g = 0; g < groups; ++g) {
      const auto over_group = [&](const auto& f) {
        double sum = 0;
        for (size_t i = 0; i < rows * kPeriod; ++i) sum += times(i % kPeriod) * f(z[g * rows * kPeriod + i]);
        return sum / static_cast<double>(rows * kLength);
      };
      mean[g] = over_group([](double v) { return v; });
      rstd[g] = 1 / std::sqrt(over_group([&](double v) { return (v - mean[g]) * (v - mean[g]); }) + 1e-5);
    }
    for_every_path(in, [&](const float* y) {
      EXPECT_LE(largest_difference(y, kChannels * kLength,
                                   [&](size_t i) {
                                     const size_t o = i / kLength, l = i % kLength % kPeriod, g = o / rows;
                                     return (z[o * kPeriod + l] - mean[g]) * rstd[g] * in.gamma[o] + in.beta[o];
                                   }),
                2e-5);
    });
  }
}

// Sample n holds what sample n mod 7 holds.
void expect_samples_repeat(Inputs in) {
  const size_t sample = in.x.size() / static_cast<size_t>(in.problem.n),
               y_sample = static_cast<size_t>(in.sizes.y_elements / in.problem.n);
  for (size_t i = 7 * sample; i < in.x.size(); ++i) in.x[i] = in.x[i - 7 * sample];
  const Problem& p = in.problem;
  Inputs seven = in;
  seven.problem.n = 7, seven.sizes = Sizes(seven.problem);
  seven.x.resize(7 * sample);
  EXPECT_EQ(check_every_path(seven), "");
  for_every_path(in, [&](const float* y) {
    int64_t different = 0;
    for (int64_t n = 7; n < p.n; ++n) {
      different += std::memcmp(y + static_cast<size_t>(n) * y_sample, y + static_cast<size_t>(n % 7) * y_sample,
                               y_sample * 4) != 0;
    }
    EXPECT_EQ(different, 0) << "samples";
    const Outcome few = run(seven);
    // The tiles of a GPU depend on the size of the batch, and with them the order of sums.
    EXPECT_LE(largest_difference(y, 7 * y_sample, [&](size_t i) { return few.y[i]; }),
              test_device() == CONVNORM_CPU ? 0 : 2e-6);
  });
}

TEST(BigCases, B043_BatchBeyond65535) { expect_samples_repeat(make_inputs("n=65537,c=4,l=8,o=8,k=3,p=1,g=2,bias=1")); }

// z of the one sample would take 93 MB, y takes 23: keeping it would exceed the workspace's limit.
TEST(BigCases, ASampleWhoseConvolutionCannotBeKept) {
  for (const char* layout : {"ncl", "nlc"}) {
    const Inputs in = make_inputs(
        fmt::format("n=1,c=1,l=2900000,o=8,k=3,p=1,g=2,bias=1,post=glu,dtype=f16,layout={}", layout), Fill::uniform);
    const Outcome outcome = run(in, {.threads = 2});
    ASSERT_EQ(outcome.fault, "");
    EXPECT_LE(outcome.workspace_bytes, outcome.bytes.size() + (size_t{64} << 20));
    EXPECT_EQ(compare(in, Expected(in), outcome.y, outcome.arithmetic), "") << outcome.path;
  }
}

TEST(BigCases, B050_LengthOne) {
  EXPECT_EQ(check_every_path(identity_case("n=2048,c=384,l=1,o=384,k=1,cg=384,g=3,affine=0")), "");
}

TEST(BigCases, B066_BatchOfShortSignalsAtAReducedSize) {
  expect_samples_repeat(make_inputs("n=65537,c=2,l=257,o=2,k=3,s=2,cg=2,g=2,bias=1"));
}

}  // namespace
}  // namespace convnorm::test
