// The small-L kernel: taps that share one reading of x and taps that are read one by one, every stride, dilation and
// padding, every number of column tiles, groups in a warp, in a cluster and across the GPU.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "operator/named_path.hpp"

namespace convnorm::test {
namespace {

class Sm90StreamCalls : public NamedPathTest {
 protected:
  Sm90StreamCalls() : NamedPathTest("sm90_stream") {}
};

// Up to 32 columns, of which there are instances for all products.
constexpr const char* kNarrow[] = {
    // One reading of x for all taps.
    "n=1,c=40,l=16,o=64,k=5,p=2,g=8,bias=1,post=mish",
    "n=2,c=70,l=7,o=48,k=3,p=1,g=3,bias=1,post=film+silu",
    "n=3,c=100,l=8,o=40,k=5,p=2,g=0,bias=1,post=relu",
    // Tap by tap.
    "n=1,c=300,l=4,o=64,k=1,g=0,bias=1",
    "n=1,c=130,l=1,o=32,k=1,g=2",
    "n=5,c=33,l=3,o=32,k=1,g=4,post=add",
    // Several tiles of samples, the last one with fewer.
    "n=37,c=40,l=8,o=64,k=5,p=2,g=8,bias=1,post=mish",
    "n=11,c=70,l=7,o=48,k=3,p=1,g=3,bias=1,post=film+silu",
    "n=13,c=32,l=16,o=256,k=3,p=1,g=1,post=add",
    "n=21,c=50,l=23,o=64,k=4,s=2,p=1,g=8,bias=1,pre=prelu",
    "n=1,c=64,l=16,o=48,k=3,s=2,p=1,g=0,bias=1",
    "n=2,c=50,l=23,o=64,k=4,s=2,p=1,g=8,bias=1,post=mish",
    "n=1,c=40,l=301,o=32,k=7,s=10,p=3,g=4,pre=relu",
    "n=1,c=40,l=20,o=64,k=3,d=3,p=3,g=8,post=silu",
    "n=2,c=30,l=9,o=32,k=3,d=2,p=4:0,g=2,pre=prelu,post=prelu",
    "n=1,c=36,l=9,o=64,k=7,p=3,pad=reflect,g=16,bias=1",
    "n=2,c=24,l=5,o=32,k=9,p=4,pad=replicate,g=1,post=film+silu",
    "n=1,c=17,l=26,o=32,k=4,s=3,d=2,p=6:5,pad=reflect,g=2,post=gelu",
};
constexpr const char* kWide[] = {
    "n=4,c=40,l=16,o=64,k=5,p=2,g=8,bias=1,post=mish",     "n=1,c=80,l=100,o=32,k=1,g=4",
    "n=7,c=70,l=12,o=32,k=1,g=0,bias=1,post=relu",         "n=2,c=20,l=201,o=32,k=6,s=4,p=2,g=2,post=mish",
    "n=8,c=24,l=16,o=48,k=3,p=1,pad=replicate,g=3,bias=1", "n=9,c=64,l=128,o=128,k=3,p=1,g=8,bias=1,post=film+silu",
    "n=67,c=32,l=32,o=64,k=5,p=2,g=8,bias=1,post=mish",
};

// Samples of 4, 8, 16 and 32 positions, whose groups fill units: one in a unit, in a CTA, in a cluster and across the
// GPU; every op, and a last tile of fewer samples.
constexpr const char* kStraight[] = {
    "n=1,c=64,l=8,o=128,k=5,p=2,g=8,post=mish+add",
    "n=1,c=64,l=16,o=128,k=3,p=1,g=8,bias=1,post=film+mish",
    "n=1,c=64,l=4,o=256,k=5,p=2,g=8,bias=1,post=mish",
    "n=1,c=512,l=16,o=512,k=5,p=2,g=8,bias=1,post=mish+film+add",
    "n=2,c=200,l=32,o=64,k=5,p=2,g=2,bias=1,post=silu",
    "n=3,c=48,l=8,o=1024,k=3,p=1,g=2,bias=1,post=prelu",
    "n=5,c=48,l=4,o=64,k=5,p=2,g=4,bias=1",
    "n=1,c=64,l=8,o=24,k=5,p=2,g=3,bias=1,post=film+mish+add",
};
// More blocks a warp than registers hold at once. Ragged channels and positions, several samples.
constexpr const char* kLong[] = {
    "n=1,c=1024,l=16,o=1024,k=5,p=2,g=8,bias=1",
    "n=1,c=9100,l=4,o=32,k=5,p=2,g=2,bias=1,post=mish",
    "n=2,c=9100,l=7,o=24,k=3,p=1,g=3,bias=1,post=silu",
};
// As many whole blocks in each warp as there are instances for, in one round of registers and in several.
constexpr const char* kWhole[] = {
    "n=1,c=512,l=8,o=1024,k=5,p=2,g=8,bias=1,post=mish+film",
    "n=1,c=1024,l=8,o=1024,k=5,p=2,g=8,bias=1,post=mish+add",
    "n=2,c=512,l=4,o=1024,k=5,p=2,g=1,post=silu",
    "n=1,c=2048,l=4,o=512,k=5,p=2,g=1",
    "n=1,c=512,l=16,o=128,k=5,p=2,g=1,bias=1,post=add+film+silu",
    "n=3,c=512,l=8,o=512,k=5,p=2,g=32,bias=1,post=prelu+add",
};

std::vector<std::string> both() {
  std::vector<std::string> lines(std::begin(kNarrow), std::end(kNarrow));
  lines.insert(lines.end(), std::begin(kStraight), std::end(kStraight));
  lines.insert(lines.end(), std::begin(kWhole), std::end(kWhole));
  lines.insert(lines.end(), std::begin(kWide), std::end(kWide));
  return lines;
}

// A test for each, so that they can be dealt to several processes.
class Sm90StreamOptions : public Sm90StreamCalls,
                          public testing::WithParamInterface<std::tuple<std::string, std::string>> {};

TEST_P(Sm90StreamOptions, AreRight) {
  expect_right_on_both_fills(std::get<0>(GetParam()) + "," + std::get<1>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(EveryType, Sm90StreamOptions,
                         testing::Combine(testing::ValuesIn(both()),
                                          testing::Values("dtype=f32", "dtype=f16", "dtype=bf16")));
INSTANTIATE_TEST_SUITE_P(SixProducts, Sm90StreamOptions,
                         testing::Combine(testing::ValuesIn(std::vector<std::string>(std::begin(kNarrow),
                                                                                     std::end(kNarrow))),
                                          testing::Values("precision=highest")));

// The tensor cores of other paths add up thousands of products in one chain, and cut off more than a plain sum in fp32
// rounds.
TEST_F(Sm90StreamCalls, LongSums) {
  for (const char* line : kLong) {
    for (const char* type : {"f32", "f16", "bf16"}) {
      SCOPED_TRACE(std::string(line) + ",dtype=" + type);
      expect_path_right(make_inputs(std::string(line) + ",dtype=" + type));
      expect_path_right(make_inputs(std::string(line) + ",dtype=" + type, Fill::correlated), 1);
    }
  }
}

TEST_F(Sm90StreamCalls, SameBitsEveryTime) {
  for (const std::string& line : both()) EXPECT_EQ(check_same_bits(make_inputs(line)), "") << line;
}

}  // namespace
}  // namespace convnorm::test
