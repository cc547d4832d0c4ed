#include "cli/compare.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace convnorm::cli {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Comparison compare(const std::vector<float>& got, const std::vector<float>& want, bool allow_nan = false,
                   convnorm_dtype dtype = CONVNORM_F32) {
  Comparison comparison(tolerance_of(dtype), allow_nan);
  comparison.add(got, want, 0);
  return comparison;
}

TEST(Compare, EqualIsZero) {
  const Comparison result = compare({1, -2, 3}, {1, -2, 3});
  EXPECT_TRUE(result.pass());
  EXPECT_EQ(result.max_abs_err(), 0);
  EXPECT_EQ(result.worst_ratio(), 0);
}

TEST(Compare, RatioIsOfTheToleranceAtThatElement) {
  // 0.5 and 0.0004 off: the larger error is the smaller ratio.
  const Comparison result = compare({10000.5f, 1.0004f, 0}, {10000, 1, 0});
  EXPECT_FALSE(result.pass());
  EXPECT_EQ(result.worst_index(), 1);
  EXPECT_NEAR(result.worst_ratio(), 4e-4 / 2e-4, 1e-3);
  EXPECT_NEAR(result.max_abs_err(), 0.5, 1e-9);
}

TEST(Compare, WorstIndexCountsFromTheOffset) {
  Comparison result(tolerance_of(CONVNORM_F32), false);
  result.add(std::vector<float>{1, 2}, std::vector<float>{1, 2}, 0);
  result.add(std::vector<float>{3, 5}, std::vector<float>{3, 4}, 2);
  EXPECT_EQ(result.worst_index(), 3);
  EXPECT_EQ(result.count(), 4);
}

TEST(Compare, TolerancesOfSixteenBitTypes) {
  EXPECT_TRUE(compare({1.003f, -1}, {1, -1}, false, CONVNORM_F16).pass());
  EXPECT_FALSE(compare({1.005f, -1}, {1, -1}, false, CONVNORM_F16).pass());
  EXPECT_TRUE(compare({1.03f, -1}, {1, -1}, false, CONVNORM_BF16).pass());
  EXPECT_FALSE(compare({1.04f, -1}, {1, -1}, false, CONVNORM_BF16).pass());
}

TEST(Compare, B095ZerosDoNotPassForSmallOutputs) {
  // Each single element is within the tolerance of 1e-4.
  std::vector<float> small;
  for (int i = 0; i < 100; ++i) small.push_back(8e-5f * (i % 2 == 0 ? 1.0f : -1.0f));
  const Comparison result = compare(std::vector<float>(100, 0.0f), small);
  EXPECT_LE(result.worst_ratio(), 1);
  EXPECT_FALSE(result.pass());
}

TEST(Compare, ConstantOutputsHaveNoSpreadToMiss) {
  EXPECT_TRUE(compare({1e-5f, 0, 0}, {0, 0, 0}).pass());
  EXPECT_TRUE(compare({2.0001f, 2, 2}, {2, 2, 2}).pass());
}

TEST(Compare, CoarseTypesWithALargeMeanPass) {
  // bf16 keeps 8 bits: around 100 its grid is 0.5, half of the spread here.
  EXPECT_TRUE(compare({100.5f, 101, 99.5f, 98.5f}, {100.3f, 101.2f, 99.3f, 98.7f}, false, CONVNORM_BF16).pass());
}

TEST(Compare, B099NanIsNoWildcard) {
  EXPECT_FALSE(compare({kNan, kNan}, {1, 2}).pass());
  EXPECT_FALSE(compare({1, 2}, {kNan, 2}).pass());
  EXPECT_EQ(compare({1, 2}, {kNan, 2}).nonfinite_mismatches(), 1);
  EXPECT_EQ(compare({kNan, 2}, {1, 2}).max_abs_err(), kInf);
}

TEST(Compare, B099EqualNanPassOnlyWhenAllowed) {
  EXPECT_FALSE(compare({kNan, 2}, {kNan, 2}).pass());
  EXPECT_TRUE(compare({kNan, 2}, {kNan, 2}, true).pass());
  EXPECT_FALSE(compare({2, kNan}, {kNan, 2}, true).pass());
}

TEST(Compare, InfinityEqualsItselfOnly) {
  EXPECT_TRUE(compare({kInf, 1}, {kInf, 1}).pass());
  EXPECT_FALSE(compare({kInf, 1}, {-kInf, 1}).pass());
  EXPECT_FALSE(compare({1e30f, 1}, {kInf, 1}).pass());
  EXPECT_FALSE(compare({kNan, 1}, {kInf, 1}, true).pass());
}

}  // namespace
}  // namespace convnorm::cli
