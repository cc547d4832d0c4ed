// The GPU's path for one input channel per output channel: every walk along rows, every kind of edge, domains within a
// CTA, among CTAs, and larger than the GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/named_path.hpp"

namespace convnorm::test {
namespace {

class Depthwise : public NamedPathTest {
 protected:
  Depthwise() : NamedPathTest("depthwise") {}
};

constexpr const char* kLines[] = {
    "n=2,c=5,l=1001,o=5,k=3,d=128,p=128,cg=5,g=1,bias=1,post=relu",
    "n=1,c=4,l=1280,o=4,k=7,d=256,p=768,cg=4,g=2,pre=prelu,post=film+silu",
    "n=2,c=6,l=803,o=12,k=3,d=8,p=8:3,cg=6,g=3,bias=1,pre=prelu",
    "n=2,c=6,l=803,o=12,k=3,d=12,p=12:3,cg=6,g=3,bias=1,pre=prelu",
    "n=2,c=6,l=640,o=6,k=5,d=4,p=8,pad=reflect,cg=6,g=6,post=mish+add",
    "n=3,c=7,l=517,o=7,k=31,p=15,cg=7,g=1,lengths=1,post=gelu",
    "n=1,c=40,l=333,o=40,k=1,cg=40,g=40,affine=0",
    "n=2,c=8,l=999,o=8,k=4,s=3,p=2,pad=replicate,cg=8,g=4,bias=1,lengths=1,post=leaky_relu",
    "n=1,c=3,l=700,o=9,k=3,d=5,p=5,cg=3,g=3,pre=relu,post=tanh",
    "n=2,c=6,l=515,o=6,k=3,p=1,cg=6,g=0,bias=1,post=relu+add",
};

TEST_F(Depthwise, EveryWalkOptionAndType) {
  for (const char* line : kLines) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
      expect_right_on_both_fills(std::string(line) + ",dtype=" + dtype);
    }
  }
}

// Rows of x, of y and of weights start anywhere within a sector, independently of each other where lengths are odd.
TEST_F(Depthwise, OperandsAnywhereWithinASector) {
  for (const char* line :
       {"n=2,c=3,l=897,o=3,k=3,d=128,p=128,cg=3,g=1,bias=1,post=relu", "n=2,c=3,l=774,o=3,k=5,d=256,p=512,cg=3,g=3",
        "n=2,c=3,l=901,o=6,k=3,d=12,p=12,cg=3,g=1,pre=prelu", "n=2,c=3,l=777,o=3,k=5,d=4,p=0:4,cg=3,g=1",
        "n=2,c=3,l=778,o=3,k=31,p=15,cg=3,g=1,post=silu", "n=2,c=3,l=600,o=3,k=8,p=3,cg=3,g=3",
        "n=2,c=3,l=779,o=3,k=3,s=2,p=1,cg=3,g=1"}) {
    for (const char* dtype : {"f32", "bf16"}) {
      for (int misalignment = 1; misalignment <= 8; ++misalignment) {
        SCOPED_TRACE(testing::Message() << line << ' ' << dtype << ' ' << misalignment);
        expect_right(make_inputs(std::string(line) + ",dtype=" + dtype), misalignment);
      }
    }
  }
}

TEST_F(Depthwise, RowsShorterThanAWindow) {
  for (const char* line :
       {"n=2,c=5,l=1,o=5,k=3,p=1,cg=5,g=1", "n=3,c=4,l=2,o=8,k=31,p=15,cg=4,g=2,bias=1,post=silu",
        "n=2,c=6,l=7,o=6,k=9,p=4,cg=6,g=3,pad=reflect", "n=2,c=6,l=5,o=6,k=3,d=128,p=128,cg=6,g=1,pad=replicate",
        "n=2,c=6,l=13,o=6,k=3,d=8,p=8,cg=6,g=6,pre=prelu", "n=2,c=5,l=9,o=5,k=3,d=4,cg=5,g=1",
        "n=5,c=3,l=20,o=3,k=31,p=15,cg=3,g=1,lengths=1", "n=2,c=3,l=4,o=3,k=4,cg=3,g=0,bias=1",
        "n=2,c=3,l=3,o=3,k=3,s=5,p=1,cg=3,g=3"}) {
    for (const char* dtype : {"f32", "f16"}) expect_right_on_both_fills(std::string(line) + ",dtype=" + dtype);
  }
}

// So many rows that none is cut into pieces: tiles that lie whole inside a job, outputs that take the place of inputs,
// and padding that is longer than a tile.
TEST_F(Depthwise, RowsOfManyTiles) {
  for (const char* line : {"n=2,c=530,l=1501,o=530,k=3,d=128,p=128,cg=530,g=1,bias=1,post=relu",
                           "n=1,c=1060,l=1400,o=1060,k=5,d=256,p=512,cg=1060,g=5",
                           "n=1,c=1056,l=1333,o=1056,k=3,d=8,p=8,cg=1056,g=2,pre=prelu",
                           "n=3,c=200,l=1536,o=400,k=3,d=256,p=256,cg=200,g=2,bias=1,lengths=1,post=relu+add",
                           "n=2,c=528,l=1400,o=528,k=4,d=12,p=18,pad=reflect,cg=528,g=3,bias=1,eps=1e-14",
                           "n=3,c=360,l=1100,o=360,k=31,p=15,cg=360,g=1,lengths=1,post=silu",
                           "n=2,c=530,l=2001,o=530,k=4,s=2,p=1,cg=530,g=530",
                           "n=1,c=1060,l=900,o=1060,k=2,d=1000,p=900:700,cg=1060,g=1,lengths=1"}) {
    for (const char* dtype : {"f32", "bf16"}) expect_right_on_both_fills(std::string(line) + ",dtype=" + dtype);
  }
}

// Lanes that take steps within a block: pairs of them, and all groups up to a block.
TEST_F(Depthwise, StepsWithinABlock) {
  for (const char* dilation : {"d=4,p=4", "d=8,p=8", "d=16,p=16", "d=32,p=32", "d=64,p=64"}) {
    for (const char* size : {"n=2,c=70,l=645,o=140,cg=70", "n=4,c=270,l=1281,o=270,cg=270"}) {
      for (const char* options : {"bias=1,post=relu", "pre=prelu,lengths=1,post=tanh"}) {
        const std::string line = std::string(size) + ",k=3,g=1," + dilation + "," + options;
        for (int misalignment : {0, 3}) expect_right(make_inputs(line), misalignment);
      }
    }
  }
}

TEST_F(Depthwise, DomainsLargerThanTheGpu) {
  // Each output needs 25,000 inputs on chip; they are read twice.
  expect_right(make_inputs("n=1,c=300,l=25128,o=300,k=2,d=25000,cg=300,g=1"));
}

TEST_F(Depthwise, ManyDomainsOneAfterTheOther) { expect_right(make_inputs("n=300,c=9,l=300,o=9,k=3,p=1,cg=9,g=3")); }

// Rows that stay with their warps, in several rounds: what arrives next takes the place of what was stored.
TEST_F(Depthwise, RoundsOfResidentRows) {
  for (const char* line : {"n=150,c=16,l=3200,o=16,k=3,d=128,p=128,cg=16,g=1,bias=1,post=relu",
                           "n=140,c=16,l=3000,o=16,k=3,d=8,p=8,cg=16,g=1,pre=prelu,lengths=1",
                           "n=150,c=16,l=3201,o=16,k=3,d=128,p=100:127,cg=16,g=1,bias=1",
                           "n=140,c=16,l=3003,o=16,k=3,d=4,p=1:6,cg=16,g=1,post=silu"}) {
    for (const char* dtype : {"f32", "bf16"}) expect_right(make_inputs(std::string(line) + ",dtype=" + dtype));
  }
}

// Warps with several rows each, up to all that a CTA may hold.
TEST_F(Depthwise, ManyResidentRowsACta) {
  for (const char* line : {"n=264,c=20,l=300,o=20,k=3,d=4,p=4,cg=20,g=1", "n=264,c=64,l=200,o=64,k=3,d=4,p=4,cg=64,g=1",
                           "n=500,c=40,l=300,o=40,k=3,d=12,p=12,cg=40,g=1,bias=1,lengths=1",
                           "n=40,c=512,l=400,o=512,k=3,d=8,p=8,cg=512,g=1,pre=prelu"}) {
    for (const char* dtype : {"f32", "f16"}) expect_right(make_inputs(std::string(line) + ",dtype=" + dtype));
  }
}

// Beyond fp32's range: squares, and for the largest the root of a CTA's sum of them.
TEST_F(Depthwise, SquaresThatFp32DoesNotHold) {
  for (const char* conv : {"k=3,d=128,p=128", "k=3,d=8,p=8,pre=relu", "k=3,p=1"}) {
    for (const float factor : {3e37f, 1e22f, 1e-22f}) {
      Inputs in =
          make_inputs(std::string("n=1,c=530,l=1300,o=530,cg=530,g=2,eps=1e-50,affine=0,") + conv, Fill::uniform);
      for (float& x : in.x) x *= factor;
      expect_right(in);
    }
  }
}

// The mean is all that there is: what is left of a distance must not be blown up. Rows that pass through, and rows that
// stay.
TEST_F(Depthwise, EqualValuesBesideATinyEps) {
  for (const char* shape : {"n=1,c=530,l=1300,o=530,k=3,d=128,cg=530,g=530,bias=1",
                            "n=1,c=132,l=1300,o=132,k=3,d=128,cg=132,g=132,bias=1"}) {
    for (const char* eps : {"1e-5", "1e-12", "1e-14"}) {
      for (const float value : {0.3f, 1e5f, 9.9e9f}) {
        Inputs in = make_inputs(std::string(shape) + ",eps=" + eps);
        std::fill(in.x.begin(), in.x.end(), value);
        expect_right(in);
      }
    }
  }
}

TEST_F(Depthwise, AMeanThousandsOfTimesTheSpread) {
  Inputs in = make_inputs("n=1,c=4,l=3000,o=4,k=3,d=128,p=0,cg=4,g=1", Fill::uniform);
  for (float& x : in.x) x = 1000.0f + 0.125f * x;
  expect_right(in);
}

// Zeros in the padding set the first outputs of a row apart from all others, thousands of which lie close together.
TEST_F(Depthwise, RowsWhoseFirstOutputsAreSetApart) {
  for (const char* line : {"n=2,c=528,l=3400,o=528,k=3,p=1,cg=528,g=528,affine=0",
                           "n=2,c=528,l=3333,o=528,k=3,d=128,p=128,cg=528,g=528,affine=0",
                           "n=2,c=4,l=9001,o=4,k=31,p=15,cg=4,g=4,affine=0"}) {
    Inputs in = make_inputs(line, Fill::uniform);
    std::fill(in.x.begin(), in.x.end(), 1.0f);
    expect_right(in);
    in = make_inputs(line, Fill::uniform);
    for (float& x : in.x) x = 100.0f + x;
    expect_right(in);
  }
}

TEST_F(Depthwise, SameBitsEveryTime) {
  for (const char* line : kLines) EXPECT_EQ(check_same_bits(make_inputs(line)), "") << line;
}

}  // namespace
}  // namespace convnorm::test
