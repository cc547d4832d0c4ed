// The one-wave kernel for wgmma where it takes a way of its own: padded batches by warps, tiles of 64 and of 136
// columns, tiles of several whole samples, whose first x comes by copies, inputs that a stride deals to phases.
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

// As many samples as take tiles of 128 columns.
TEST_F(Sm90OnchipCalls, PaddedBatchesInWiderTiles) {
  std::vector<int64_t> lengths;
  for (int n = 0; n < 36; ++n) lengths.push_back(std::array{200, 0, 1, 128, 129}[static_cast<size_t>(n % 5)]);
  expect_right_in_every_type("n=36,c=24,l=200,o=32,k=3,p=1,g=1,bias=1,lengths=1,post=silu", lengths);
  expect_right_in_every_type("n=36,c=24,l=200,o=32,k=3,g=32,bias=1,lengths=1", lengths);
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

// Layers of few tiles take narrow ones: with pieces of groups and whole ones, fewer participants of a group than a warp
// has lanes, more, and more than a lane reads at once.
TEST_F(Sm90OnchipCalls, TilesOf64Columns) {
  expect_right_in_every_type("n=3,c=70,l=200,o=96,k=5,p=2,g=6,bias=1,post=mish");
  expect_right_in_every_type("n=2,c=33,l=334,o=130,k=3,d=2,p=2,g=13,post=gelu");
  expect_right_in_every_type("n=4,c=100,l=400,o=96,k=3,p=1,g=1,bias=1,post=leaky_relu(0.01)");
  expect_right_in_every_type("n=1,c=130,l=1200,o=192,k=3,p=1:0,g=1,bias=1");
  expect_right_in_every_type("n=2,c=300,l=126,o=64,k=7,p=3,g=0,bias=1,post=relu");
  expect_right_in_every_type("n=2,c=66,l=500,o=64,k=1,g=32,post=add");
}

// Two samples more than fit at once in two tiles of 128 columns each.
TEST_F(Sm90OnchipCalls, TilesOf136Columns) {
  expect_right_in_every_type("n=68,c=33,l=130,o=240,k=2,p=1:0,g=15,bias=1,post=mish");
  expect_right_in_every_type("n=68,c=33,l=130,o=256,k=3,p=1,g=0,bias=1");
  expect_right_in_every_type("n=68,c=66,l=136,o=256,k=1,g=1,lengths=1");
}

// By fours that are vectors or not, with every kind of edge, through refills.
TEST_F(Sm90OnchipCalls, RowsDealtToPhases) {
  expect_right_in_every_type("n=2,c=40,l=1004,o=128,k=4,s=2,p=1,g=8,bias=1");
  expect_right_in_every_type("n=3,c=33,l=2002,o=128,k=5,s=2,p=3,d=3,pad=replicate,g=8,post=silu");
  expect_right_in_every_type("n=2,c=200,l=3001,o=128,k=8,s=4,p=2,pad=reflect,g=4,post=gelu");
  expect_right_in_every_type("n=2,c=72,l=6006,o=256,k=16,s=8,p=5,g=16");
  expect_right_in_every_type("n=1,c=24,l=20000,o=64,k=20,s=16,p=2,d=2,g=4");
  // Slots of fewer fours than there are warps to take them, in many rounds.
  expect_right_in_every_type("n=150,c=8,l=200,o=384,k=1,s=4,g=1");
  expect_right_in_every_type("n=100,c=8,l=256,o=512,k=3,s=4,g=1");
}

TEST_F(Sm90OnchipCalls, TilesOfWholeSamples) {
  expect_right_in_every_type("n=13,c=75,l=16,o=128,k=5,p=2,g=8,bias=1,post=mish");
  expect_right_in_every_type("n=21,c=136,l=8,o=192,k=5,p=2,g=2,bias=1");
  expect_right_in_every_type("n=19,c=90,l=8,o=64,k=4,p=3:0,g=4,post=add");
  expect_right_in_every_type("n=300,c=33,l=8,o=256,k=2,p=1:0,g=8");
}

// x arranged by a launch before: zeros beside short samples, samples and channels that fill no tile and no chunk, an
// odd number of chunks; rows that padding repeats; several positions a stride.
// One line each: references in double take most of the time, and shards share them out.
class Sm90OnchipArranged : public Sm90OnchipCalls, public testing::WithParamInterface<std::string> {};

TEST_P(Sm90OnchipArranged, IsRight) { expect_right_in_every_type(GetParam()); }

INSTANTIATE_TEST_SUITE_P(X, Sm90OnchipArranged,
                         testing::Values("n=19,c=520,l=4,o=256,k=5,p=2,g=8,bias=1,post=mish",
                                         "n=19,c=640,l=4,o=200,k=5,p=2,g=8,bias=1,post=mish",
                                         "n=21,c=544,l=8,o=192,k=5,p=3:1,g=2,bias=1",
                                         "n=35,c=416,l=7,o=256,k=3,p=1,pad=replicate,g=4,pre=relu",
                                         "n=13,c=512,l=15,o=320,k=4,s=2,p=3,pad=reflect,g=5"));

}  // namespace
}  // namespace convnorm::test
