// The one-wave kernel for mma.sync: both epilogues, both tile widths, groups that lie in a warp, in a block, in both
// blocks of a warp and in many tiles, every kind of edge, glu, conv groups, and more domains than the GPU holds at
// once.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "operator/named_path.hpp"

namespace convnorm::test {
namespace {

class Sm80OnchipCalls : public NamedPathTest {
 protected:
  Sm80OnchipCalls() : NamedPathTest("sm80_onchip") {}
};

// Small, since each is evaluated in double and, for every type, in several orders of fp32: none has more than six
// million products.
constexpr const char* kLines[] = {
    // Rows of y on sectors: warps take their rows to the end by themselves.
    "n=2,c=40,l=144,o=100,k=3,p=1,g=25,bias=1,post=silu",
    "n=1,c=20,l=272,o=192,k=3,p=1,g=2,post=mish",
    "n=1,c=33,l=400,o=144,k=3,p=1,g=1,bias=1",
    "n=3,c=64,l=128,o=144,k=1,g=9,affine=0",
    "n=2,c=48,l=160,o=64,k=3,d=2,p=2,g=0,bias=1,post=relu",
    // All others.
    "n=2,c=17,l=333,o=70,k=3,p=1,g=7,bias=1,post=gelu",
    "n=1,c=17,l=131,o=390,k=3,p=2:0,g=3,pre=prelu,post=film+silu",
    "n=5,c=40,l=7,o=150,k=3,p=1,g=5,bias=1,post=mish",
    "n=21,c=16,l=16,o=128,k=5,p=2,g=1,post=add",
    "n=2,c=20,l=701,o=66,k=10,s=5,p=3,g=2,pre=relu,post=leaky_relu",
    "n=2,c=19,l=300,o=130,k=4,s=2,p=1,pad=reflect,g=13,lengths=1,post=tanh",
    "n=2,c=33,l=200,o=40,k=7,d=3,p=9,pad=replicate,g=40,lengths=1",
    "n=3,c=72,l=150,o=40,k=3,p=1,g=5,bias=1,lengths=1,post=mish",
    "n=2,c=16,l=100,o=128,k=3,p=1,g=0,post=glu",
    "n=2,c=30,l=203,o=384,k=1,g=1,bias=1,post=glu",
    "n=2,c=18,l=131,o=384,k=3,p=1,g=3,bias=1,pre=relu,post=silu+glu+mish",
    "n=3,c=24,l=64,o=256,k=3,p=1,g=8,post=glu+film+add",
    "n=2,c=40,l=140,o=256,k=3,p=1,cg=2,g=4,bias=1,post=silu",
    "n=2,c=48,l=128,o=384,k=3,p=1,cg=3,g=24",
    // Channels last, eight of them a vector of x or not.
    "n=2,c=40,l=144,o=100,k=3,p=1,g=25,bias=1,post=silu,layout=nlc",
    "n=3,c=19,l=61,o=130,k=4,s=2,p=1,pad=reflect,g=13,lengths=1,post=film+mish+add,layout=nlc",
    "n=9,c=16,l=16,o=128,k=5,p=2,g=1,pre=prelu,post=glu+add,layout=nlc",
    "n=2,c=48,l=70,o=256,k=3,p=1,cg=2,g=4,layout=nlc",
};

// A test for each, so that they can be dealt to several processes.
class Sm80OnchipOptions : public Sm80OnchipCalls,
                          public testing::WithParamInterface<std::tuple<std::string, std::string>> {};

TEST_P(Sm80OnchipOptions, AreRight) {
  expect_right_on_both_fills(std::get<0>(GetParam()) + "," + std::get<1>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(EveryType, Sm80OnchipOptions,
                         testing::Combine(testing::ValuesIn(std::vector<std::string>(std::begin(kLines),
                                                                                     std::end(kLines))),
                                          testing::Values("dtype=f32", "dtype=f32,precision=highest",
                                                          "dtype=f32,precision=medium", "dtype=f16", "dtype=bf16")));

// One product of each pair is enough for these. An odd and an even number of chunks: which of the two slots a tile
// begins with changes from tile to tile, or does not.
TEST_F(Sm80OnchipCalls, ManyDomainsOneAfterTheOther) {
  expect_right(make_inputs("n=100,c=40,l=150,o=130,k=1,g=13,precision=medium"));
  expect_right(make_inputs("n=100,c=20,l=150,o=130,k=1,g=13,dtype=bf16"));
  expect_right(make_inputs("n=140,c=20,l=256,o=128,k=1,g=1,precision=medium"));
}

TEST_F(Sm80OnchipCalls, AGroupOfTheWholeGpu) {
  expect_right(make_inputs("n=2,c=3,l=16000,o=130,k=1,g=1,precision=medium"));
  expect_right(make_inputs("n=1,c=3,l=16003,o=130,k=1,g=1,precision=medium"));
}

TEST_F(Sm80OnchipCalls, SameBitsEveryTime) {
  for (const char* line : kLines) EXPECT_EQ(check_same_bits(make_inputs(line)), "") << line;
}

}  // namespace
}  // namespace convnorm::test
