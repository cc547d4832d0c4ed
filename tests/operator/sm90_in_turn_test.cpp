// Samples in turn: one, two and three tiles of a domain in a CTA, groups of a lane's row and of several tiles above one
// another, tiles past the last channel and past the last position, more domains than there are words for.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "operator/named_path.hpp"

namespace convnorm::test {
namespace {

class Sm90InTurnCalls : public NamedPathTest {
 protected:
  Sm90InTurnCalls() : NamedPathTest("sm90_in_turn") {}
};

constexpr const char* kLines[] = {
    // One tile of a domain, more than four domains of a CTA, weights that stay.
    "n=700,c=24,l=130,o=128,k=3,p=1,g=4,bias=1,post=gelu",
    // Rows of tiles with other weights in turn, one sample after the other.
    "n=8,c=40,l=3000,o=384,k=5,p=2,g=12,bias=1,post=silu",
    // Two tiles of a domain, whose last CTA has one; three.
    "n=5,c=24,l=29000,o=128,k=3,p=1,g=8,bias=1,post=mish",
    "n=3,c=24,l=33001,o=100,k=3,p=1,g=100,bias=1,post=elu",
    // Groups of all channels, in four rows of tiles; of a part of them.
    "n=4,c=96,l=3200,o=512,k=1,g=1,bias=1,pre=prelu",
    "n=7,c=33,l=500,o=512,k=4,p=2:1,g=2,pre=relu,post=tanh",
    // Strides, which phases hold; one that they do not; every kind of padding; dilation.
    "n=16,c=64,l=4000,o=128,k=8,s=4,p=2,g=4,bias=1,post=gelu",
    "n=9,c=30,l=4002,o=64,k=4,s=2,p=1,pad=reflect,g=8,bias=1,post=relu+tanh",
    "n=16,c=30,l=3001,o=60,k=7,s=3,p=3,pad=replicate,g=15,bias=1",
    "n=16,c=24,l=1001,o=24,k=3,d=9,p=9,g=3,affine=0",
    "n=16,c=24,l=900,o=64,k=64,p=32,g=4",
    // Slots of x with fewer units than there are warps that load, one chunk a tile, which three warpgroups give back.
    "n=150,c=16,l=192,o=64,k=40,g=1",
    "n=150,c=8,l=208,o=64,k=12,d=5,g=1",
};

// One line and type: references in double take most of the time, and shards share them out.
class Sm90InTurnOptions : public Sm90InTurnCalls,
                          public testing::WithParamInterface<std::tuple<std::string, std::string>> {};

TEST_P(Sm90InTurnOptions, AreRight) {
  const auto [line, type] = GetParam();
  const std::string typed = line + ",dtype=" + type;
  SCOPED_TRACE(typed);
  expect_path_right(make_inputs(typed, Fill::correlated), 1);
  expect_path_right(make_inputs(typed));
}

INSTANTIATE_TEST_SUITE_P(
    EveryType, Sm90InTurnOptions,
    testing::Combine(testing::ValuesIn(std::vector<std::string>(std::begin(kLines), std::end(kLines))),
                     testing::Values(std::string("f32"), std::string("bf16"), std::string("f16"))));

TEST_F(Sm90InTurnCalls, SameBitsEveryTime) {
  for (const char* line : kLines) EXPECT_EQ(check_same_bits(make_inputs(line)), "") << line;
}

}  // namespace
}  // namespace convnorm::test
