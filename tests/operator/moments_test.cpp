// The path that infers statistics from moments of the inputs: signals on which such an inference goes wrong if it is
// done carelessly, and those on which it must step aside.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "operator/named_path.hpp"
#include "operator/raw_audio.hpp"

namespace convnorm::test {
namespace {

class Moments : public NamedPathTest {
 protected:
  Moments() : NamedPathTest("moments") {}
};

TEST_F(Moments, TakeRawAudio) {
  const Outcome outcome = run(make_inputs("n=1,c=1,l=160000,o=512,k=10,s=5,g=512,post=gelu"));
  EXPECT_EQ(outcome.fault, "");
  EXPECT_EQ(outcome.path, "moments");
}

TEST_F(Moments, EveryFillAndOption) {
  for (const Fill fill : kFills) {
    for (const char* line :
         {kRawAudio, "n=2,c=2,l=1300,o=64,k=7,p=3,g=4,pad=reflect,lengths=1,post=glu",
          "n=3,c=1,l=700,o=24,k=5,d=3,p=7:2,g=1", "n=2,c=4,l=600,o=96,k=3,cg=2,g=6,layout=nlc,post=film+silu",
          "n=1,c=1,l=515,o=16,k=4,s=2,g=16,dtype=bf16"}) {
      SCOPED_TRACE(std::string(line) + " " + fill_name(fill));
      expect_right(make_inputs(line, fill));
    }
  }
}

// GPUs may have a launch of its own for this: rows that begin anywhere in a sector, blocks that are not full, windows
// and tiles that end within a row.
TEST_F(Moments, GeluAloneAfterFewProducts) {
  for (const char* line :
       {"n=2,c=1,l=9003,o=72,k=10,s=5,g=72,post=gelu", "n=1,c=1,l=4099,o=40,k=1,g=8,bias=1,post=gelu",
        "n=3,c=2,l=2000,o=48,k=4,p=3,pad=reflect,g=1,post=gelu,lengths=1",
        "n=2,c=4,l=900,o=96,k=5,d=3,p=6,cg=2,g=6,post=gelu,dtype=f16", "n=2,c=4,l=900,o=96,k=5,cg=2,g=1,post=gelu",
        "n=1,c=2,l=9,o=1200,k=1,g=1,post=gelu", "n=1,c=1,l=40000,o=32,k=8,g=32,post=gelu,dtype=bf16",
        "n=3,c=1,l=2001,o=48,k=3,p=1,g=16,post=gelu,lengths=1,dtype=f16",
        "n=3,c=1,l=2001,o=48,k=3,p=1,g=16,post=gelu,lengths=1,dtype=bf16", "n=2,c=1,l=64,o=16,k=3,p=1,g=16,post=gelu",
        "n=7,c=1,l=131,o=40,k=10,p=9:0,g=40,post=gelu,dtype=bf16"}) {
    expect_right_on_both_fills(line);
  }
}

// Sums are taken of distances from inputs of the sample, none of which need be like the others. (In `recompute` an
// input that is set apart takes bits from the others, whose halves have one scale.)
TEST_F(Moments, InputsSetApart) {
  for (const size_t at : {0, 3000, 6000}) {
    Inputs in = make_inputs(kRawAudio, Fill::uniform);
    in.x[at] = 100;
    expect_path_right(in);
  }
}

TEST_F(Moments, CorrelatedSignalOnAnOffset) {
  Inputs in = make_inputs(kRawAudio, Fill::uniform);
  make_correlated(in.x);
  expect_right(in);
}

TEST_F(Moments, DifferenceFiltersOnACorrelatedSignal) {
  Inputs in = make_inputs(kRawAudio, Fill::uniform);
  make_correlated(in.x);
  make_difference_filters(in);
  expect_right(in);
}

TEST_F(Moments, AConstantSignalGivesBeta) {
  Inputs in = make_inputs("n=2,c=1,l=6001,o=64,k=10,s=5,g=64", Fill::uniform);
  std::fill(in.x.begin(), in.x.end(), 3.3f);
  for (const std::string& target : targets()) {
    const Outcome outcome = run(in, {.path = "moments", .target = target});
    ASSERT_EQ(outcome.fault, "");
    ASSERT_EQ(outcome.accepted, target != "scalar") << outcome.refusal;
    if (!outcome.accepted) continue;
    for (size_t i = 0; i < outcome.y.size(); ++i) {
      const size_t channel = i / static_cast<size_t>(in.sizes.l_out) % in.beta.size();
      ASSERT_EQ(static_cast<float>(outcome.y[i]), in.beta[channel]) << target << " at " << i;
    }
  }
}

TEST_F(Moments, NaNStaysInItsSample) {
  Inputs in = make_inputs(kRawAudio, Fill::uniform);
  in.x[17] = std::numeric_limits<float>::quiet_NaN();
  expect_right(in);
}

TEST_F(Moments, ValuesWhoseSquaresOverflow) {
  // The root of a CTA's sum of squares does as well, for the longer and larger one.
  for (const auto& [length, factor] : {std::pair{600, 1e30f}, {64000, 3e37f}}) {
    Inputs in = make_inputs(fmt::format("n=1,c=1,l={},o=16,k=2,g=16,affine=0", length), Fill::uniform);
    for (size_t i = 0; i < in.x.size(); ++i) in.x[i] = factor * (i % 2 == 0 ? 1.0f : -0.5f);
    for (size_t i = 0; i < in.w.size(); ++i) in.w[i] = i % 2 == 0 ? 1.0f : 0.25f;
    expect_right(in);
  }
}

TEST_F(Moments, SameBitsForAnyThreads) {
  ASSERT_TRUE(run(make_inputs(kRawAudio), {.path = "moments"}).accepted);
  EXPECT_EQ(check_same_bits(make_inputs(kRawAudio, Fill::correlated)), "");
}

}  // namespace
}  // namespace convnorm::test
