// The one-wave kernel for wgmma where it takes a way of its own: padded batches by warps, tiles of 136 columns, tiles
// of several whole samples, whose first x comes by copies.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "operator/named_path.hpp"

namespace convnorm::test {
namespace {

class Sm90OnchipCalls : public NamedPathTest {
 protected:
  Sm90OnchipCalls() : NamedPathTest("sm90_onchip") {}

  // With operands that start on vectors and ones that do not, in the types that have such tiles.
  void expect_right_in_every_type(const std::string& line, const std::vector<int64_t>& lengths = {}) const {
    for (const char* type : {"f32", "f16", "bf16"}) {
      SCOPED_TRACE(line + ",dtype=" + type);
      Inputs in = make_inputs(line + ",dtype=" + type);
      if (!lengths.empty()) in.lengths = lengths;
      expect_right(in);
      expect_right(in, 1);
    }
  }
};

// Whole tiles lie past the end of some samples. With a bias their channels would differ, had they any values.
TEST_F(Sm90OnchipCalls, PaddedBatches) {
  const std::vector<int64_t> lengths = {400, 0, 1, 128, 129, 257};
  expect_right_in_every_type("n=6,c=70,l=400,o=64,k=3,p=1,g=4,bias=1,lengths=1,post=silu", lengths);
  expect_right_in_every_type("n=6,c=70,l=400,o=64,k=3,p=1,g=1,bias=1,lengths=1", lengths);
  expect_right_in_every_type("n=6,c=70,l=400,o=64,k=3,g=64,bias=1,lengths=1", lengths);
  expect_right_in_every_type("n=6,c=70,l=400,o=64,k=4,s=2,p=1:2,pad=replicate,g=8,lengths=1", lengths);
  expect_right_in_every_type("n=6,c=70,l=400,o=64,k=3,d=2,p=2,g=0,bias=1,lengths=1,post=relu", lengths);
}

// More pieces of a group than a warp has lanes, of which a lane's first may be empty and a later one not.
TEST_F(Sm90OnchipCalls, PaddedBatchesOfManyTiles) {
  expect_right_in_every_type("n=3,c=66,l=4500,o=32,k=1,g=1,bias=1,lengths=1", {4500, 130, 1500});
}

// Four rounds of teams, in some of which a CTA is past the end of its team's sample, and has no values to tell.
TEST_F(Sm90OnchipCalls, PaddedBatchesInRounds) {
  std::vector<int64_t> lengths;
  for (int n = 0; n < 100; ++n) lengths.push_back(std::array{400, 0, 1, 129, 300}[static_cast<size_t>(n % 5)]);
  expect_right_in_every_type("n=100,c=8,l=400,o=64,k=1,g=1,bias=1,lengths=1", lengths);
}

// Two samples more than fit at once in two tiles of 128 columns each.
TEST_F(Sm90OnchipCalls, TilesOf136Columns) {
  expect_right_in_every_type("n=68,c=33,l=130,o=240,k=2,p=1:0,g=15,bias=1,post=mish");
  expect_right_in_every_type("n=68,c=66,l=136,o=256,k=1,g=1,lengths=1");
}

TEST_F(Sm90OnchipCalls, TilesOfWholeSamples) {
  expect_right_in_every_type("n=13,c=75,l=16,o=128,k=5,p=2,g=8,bias=1,post=mish");
  expect_right_in_every_type("n=21,c=136,l=8,o=192,k=5,p=2,g=2,bias=1");
  expect_right_in_every_type("n=19,c=90,l=8,o=64,k=4,p=3:0,g=4,post=add");
  expect_right_in_every_type("n=300,c=33,l=8,o=256,k=2,p=1:0,g=8");
}

}  // namespace
}  // namespace convnorm::test
