// The path for few inputs under the kernel, whose fp32 products are formed from 16-bit halves: signals on which that
// goes wrong if it is done carelessly, every kind of set, team and window.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "operator/named_path.hpp"
#include "operator/raw_audio.hpp"

namespace convnorm::test {
namespace {

class Recompute : public NamedPathTest {
 protected:
  Recompute() : NamedPathTest("recompute") {}

  void SetUp() override {
    if (test_device() != CONVNORM_CUDA) GTEST_SKIP() << "the path of GPUs; CPUs have another one of this name";
    NamedPathTest::SetUp();
  }
};

TEST_F(Recompute, IsThePlanOfAStemOfFewChannels) {
  const Outcome outcome = run(make_inputs("n=4,c=2,l=48000,o=32,k=7,p=3,pad=reflect,g=1,bias=1,post=elu"));
  EXPECT_EQ(outcome.fault, "");
  EXPECT_EQ(outcome.path, "recompute");
}

TEST_F(Recompute, EveryFillAndOption) {
  for (const Fill fill : kFills) {
    for (const char* line :
         {kRawAudio, "n=2,c=2,l=1300,o=64,k=7,p=3,g=4,pad=reflect,lengths=1,post=glu",
          "n=3,c=1,l=700,o=24,k=5,d=3,p=7:2,g=1", "n=2,c=4,l=600,o=96,k=3,cg=2,g=6,layout=nlc,post=film+silu",
          "n=1,c=1,l=515,o=16,k=4,s=2,g=16,dtype=bf16",
          "n=2,c=3,l=900,o=40,k=7,d=2,p=6,pad=replicate,g=8,bias=1,post=add+relu",
          "n=2,c=20,l=401,o=80,k=3,s=3,p=1,g=40,bias=1,post=gelu", "n=2,c=6,l=333,o=34,k=1,g=1,post=mish",
          "n=1,c=2,l=700,o=32,k=9,p=4,g=4,post=glu,dtype=f16", "n=2,c=1,l=650,o=24,k=3,p=1,g=0,bias=1,post=relu"}) {
      SCOPED_TRACE(std::string(line) + " " + fill_name(fill));
      expect_right(make_inputs(line, fill));
    }
  }
}

TEST_F(Recompute, CorrelatedSignalOnAnOffset) {
  Inputs in = make_inputs(kRawAudio, Fill::uniform);
  make_correlated(in.x);
  expect_right(in);
}

TEST_F(Recompute, DifferenceFiltersOnACorrelatedSignal) {
  Inputs in = make_inputs(kRawAudio, Fill::uniform);
  make_correlated(in.x);
  make_difference_filters(in);
  expect_right(in);
}

TEST_F(Recompute, AConstantSignalGivesBeta) {
  Inputs in = make_inputs("n=2,c=1,l=6001,o=64,k=10,s=5,g=64", Fill::uniform);
  std::fill(in.x.begin(), in.x.end(), 3.3f);
  for (const std::string& target : targets()) {
    const Outcome outcome = run(in, {.path = "recompute", .target = target});
    ASSERT_EQ(outcome.fault, "");
    ASSERT_EQ(outcome.accepted, target != "scalar") << outcome.refusal;
    if (!outcome.accepted) continue;
    for (size_t i = 0; i < outcome.y.size(); ++i) {
      const size_t channel = i / static_cast<size_t>(in.sizes.l_out) % in.beta.size();
      ASSERT_EQ(static_cast<float>(outcome.y[i]), in.beta[channel]) << target << " at " << i;
    }
  }
}

TEST_F(Recompute, LongRowsGoThroughWindows) {
  expect_right(make_inputs("n=1,c=1,l=700001,o=8,k=10,s=5,g=1,post=gelu"));
  expect_right(make_inputs("n=1,c=2,l=300000,o=16,k=7,p=3,pad=reflect,g=16,dtype=f16"));
}

TEST_F(Recompute, OffsetsThatGrowAlongTheSignal) {
  Inputs in = make_inputs("n=1,c=1,l=60000,o=64,k=10,s=5,g=64", Fill::uniform);
  for (size_t i = 0; i < in.x.size(); ++i) in.x[i] += 1e-3f * static_cast<float>(i);
  expect_right(in);
}

TEST_F(Recompute, ManySamplesInRounds) { expect_right(make_inputs("n=700,c=1,l=130,o=16,k=3,p=1,g=4,post=silu")); }

TEST_F(Recompute, NaNStaysInItsSample) {
  Inputs in = make_inputs(kRawAudio, Fill::uniform);
  in.x[17] = std::numeric_limits<float>::quiet_NaN();
  expect_right(in);
}

TEST_F(Recompute, ValuesWhoseSquaresOverflow) {
  // The root of a CTA's sum of squares does as well, for the longer and larger one.
  for (const auto& [length, factor] : {std::pair{600, 1e30f}, {64000, 3e37f}}) {
    Inputs in = make_inputs(fmt::format("n=1,c=1,l={},o=16,k=2,g=16,affine=0", length), Fill::uniform);
    for (size_t i = 0; i < in.x.size(); ++i) in.x[i] = factor * (i % 2 == 0 ? 1.0f : -0.5f);
    for (size_t i = 0; i < in.w.size(); ++i) in.w[i] = i % 2 == 0 ? 1.0f : 0.25f;
    expect_right(in);
  }
}

TEST_F(Recompute, SameBitsForAnyThreads) {
  ASSERT_TRUE(run(make_inputs(kRawAudio), {.path = "recompute"}).accepted);
  EXPECT_EQ(check_same_bits(make_inputs(kRawAudio, Fill::correlated)), "");
}

}  // namespace
}  // namespace convnorm::test
