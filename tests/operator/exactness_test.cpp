// Inputs whose mean and variance are exact in fp32 in any order of summation: what is left is the rounding of the
// result.
#include <gtest/gtest.h>

#include <cmath>

#include "support/runner.hpp"

namespace convnorm::test {
namespace {

Inputs pairs(const std::string& line) {
  Inputs in = make_inputs(line, Fill::exact_sum);
  in.w.assign(in.w.size(), 1.0f);
  return in;
}

constexpr const char* kShapes[] = {
    "n=2,c=6,l=20,o=6,k=1,cg=6,g=3",    "n=1,c=16,l=512,o=16,k=1,cg=16,g=1", "n=1,c=16,l=1026,o=16,k=1,cg=16,g=4",
    "n=2,c=4,l=40002,o=4,k=1,cg=4,g=2", "n=3,c=1,l=18,o=33,k=1,g=11",        "n=2,c=1,l=6,o=64,k=1,g=8",
};

TEST(Exactness, OnlyTheResultIsRounded) {
  for (const char* shape : kShapes) {
    const Inputs in = pairs(shape);
    const std::vector<double> want = evaluate_in_double(in);
    EXPECT_EQ(on_every_path(in,
                            [&](const Outcome& o) -> std::string {
                              for (size_t i = 0; i < want.size(); ++i) {
                                // Three roundings: rstd * gamma, the product, the sum with beta of at most 1.
                                if (!(std::fabs(o.y[i] - want[i]) <= 0x1.8p-23 * (std::fabs(want[i]) + 1))) {
                                  return "element " + std::to_string(i) + " is " + std::to_string(o.y[i]);
                                }
                              }
                              return "";
                            }),
              "")
        << shape;
  }
}

// Without beta a fused multiply-add rounds as a product does: even instruction sets agree.
TEST(Exactness, InstructionSetsAgreeToTheBit) {
  if (test_device() == CONVNORM_CUDA)
    GTEST_SKIP() << "one architecture, whose paths have their own orders of summation";
  for (const char* shape : kShapes) {
    const Inputs in = pairs(std::string(shape) + ",affine=0");
    std::vector<std::byte> bits;
    EXPECT_EQ(on_every_path(in,
                            [&](const Outcome& o) -> std::string {
                              if (o.path == "reference") return "";
                              if (bits.empty()) bits = o.bytes;
                              return bits == o.bytes ? "" : "other bits than the first";
                            }),
              "")
        << shape;
  }
}

}  // namespace
}  // namespace convnorm::test
