// The two passes for groups that do not fit on a GPU: every kind of tile with every type, z kept in y and in the
// workspace or formed twice, groups that lie in a block of 64 channels, in several, and across their borders.
#include <gtest/gtest.h>

#include "operator/named_path.hpp"

namespace convnorm::test {
namespace {

class Sm90TwoPassCalls : public NamedPathTest {
 protected:
  Sm90TwoPassCalls() : NamedPathTest("sm90_two_pass") {}
};

constexpr const char* kLines[] = {
    // One block of channels, two, and more.
    "n=2,c=24,l=1000,o=48,k=3,p=1,g=4,bias=1,post=gelu",
    "n=1,c=40,l=1040,o=128,k=8,s=4,p=2,g=4,bias=1,post=silu",
    "n=2,c=33,l=515,o=200,k=3,p=1,g=5,pre=relu",
    // Groups of more than a block that begin within one.
    "n=1,c=20,l=515,o=390,k=3,p=2:0,g=3,pre=prelu,post=film+silu",
    "n=1,c=4,l=160,o=2304,k=1,g=32,bias=1",
    // Many tiles of one CTA: x through refills, with every kind of edge.
    "n=1,c=3,l=40003,o=8,k=7,p=3,pad=reflect,g=2,bias=1,post=elu",
    "n=2,c=3,l=20000,o=70,k=4,s=2,p=1,pad=replicate,g=7,lengths=1,post=tanh",
    "n=2,c=4,l=20001,o=8,k=3,d=5,p=5,g=1,post=add",
    // Where the second pass transposes or gates.
    "n=2,c=30,l=403,o=64,k=3,p=1,g=2,layout=nlc,lengths=1,post=silu+add",
    "n=2,c=30,l=403,o=192,k=1,g=1,bias=1,post=relu+glu+film",
    "n=2,c=18,l=260,o=96,k=3,p=1,g=3,layout=nlc,post=glu",
};

TEST_F(Sm90TwoPassCalls, EveryOption) {
  for (const char* line : kLines) {
    for (const char* type : {"f32", "bf16"}) {
      const std::string typed = std::string(line) + ",dtype=" + type;
      SCOPED_TRACE(typed);
      expect_right(make_inputs(typed, Fill::correlated), 1);
    }
  }
}

// Two warpgroups of one CTA, and two CTAs on a multiprocessor.
TEST_F(Sm90TwoPassCalls, EveryType) {
  for (const char* line :
       {"n=2,c=33,l=515,o=200,k=3,p=1,g=5,bias=1", "n=130,c=24,l=130,o=16,k=3,p=1,g=4,pre=relu,post=gelu"}) {
    for (const char* type : {"f32,precision=highest", "f32", "f32,precision=medium", "f16", "bf16"}) {
      const std::string typed = std::string(line) + ",dtype=" + type;
      SCOPED_TRACE(typed);
      expect_right(make_inputs(typed));
    }
  }
}

// Too much of z for the workspace, which may be 64 MiB larger than y.
TEST_F(Sm90TwoPassCalls, ConvolvesAgain) {
  for (const char* line : {"n=1,c=1,l=530001,o=64,k=1,g=8,bias=1,post=relu,dtype=f16",
                           "n=1,c=1,l=280001,o=128,k=2,p=1:0,g=1,pre=relu,dtype=bf16"}) {
    SCOPED_TRACE(line);
    const Inputs in = make_inputs(line);
    const Outcome outcome = run(in, {.path = "sm90_two_pass"});
    ASSERT_EQ(outcome.fault + outcome.refusal, "");
    EXPECT_EQ(outcome.z_bytes, 0);
    EXPECT_EQ(compare(in, Expected(in), outcome.y, outcome.arithmetic), "");
  }
}

TEST_F(Sm90TwoPassCalls, SameBitsEveryTime) {
  for (const char* line : kLines) EXPECT_EQ(check_same_bits(make_inputs(line)), "") << line;
}

}  // namespace
}  // namespace convnorm::test
