#include "descriptor/elements.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace convnorm {
namespace {

template <class Number>
Number from_bits(int bits) {
  Number number;
  number.bits = static_cast<uint16_t>(bits);
  return number;
}

template <class Number>
class SixteenBits : public testing::Test {};
using Types = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(SixteenBits, Types);

TYPED_TEST(SixteenBits, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto number = from_bits<TypeParam>(bits);
    const auto value = static_cast<double>(number);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<double>(TypeParam(value))));
    } else {
      ASSERT_EQ(TypeParam(value).bits, bits);
    }
  }
}

// Between neighbours a and b: the middle goes to the even one, and the least step to either side decides.
TYPED_TEST(SixteenBits, RoundsToNearestEven) {
  for (int bits = 0; bits + 1 < TypeParam::kInfinity; ++bits) {
    const auto a = static_cast<double>(from_bits<TypeParam>(bits));
    const auto b = static_cast<double>(from_bits<TypeParam>(bits + 1));
    const double middle = (a + b) / 2;
    ASSERT_EQ(TypeParam(middle).bits, bits % 2 ? bits + 1 : bits);
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0)).bits, bits);
    ASSERT_EQ(TypeParam(std::nextafter(middle, b)).bits, bits + 1);
    ASSERT_EQ(TypeParam(-middle).bits, TypeParam(middle).bits | 0x8000);
  }
}

TYPED_TEST(SixteenBits, LargeValuesBecomeInfinite) {
  const auto largest = static_cast<double>(from_bits<TypeParam>(TypeParam::kInfinity - 1));
  const double step = largest - static_cast<double>(from_bits<TypeParam>(TypeParam::kInfinity - 2));
  EXPECT_EQ(TypeParam(largest + step / 2).bits, TypeParam::kInfinity);
  EXPECT_EQ(TypeParam(std::nextafter(largest + step / 2, 0.0)).bits, TypeParam::kInfinity - 1);
  EXPECT_EQ(TypeParam(std::numeric_limits<double>::max()).bits, TypeParam::kInfinity);
  EXPECT_EQ(TypeParam(-HUGE_VAL).bits, TypeParam::kInfinity | 0x8000);
}

TYPED_TEST(SixteenBits, TinyValuesBecomeZeroWithTheirSign) {
  EXPECT_EQ(TypeParam(std::numeric_limits<double>::denorm_min()).bits, 0);
  EXPECT_EQ(TypeParam(-0.0).bits, 0x8000);
}

// 1 + 2^-11 + 2^-40 is above the middle; as a float it would be the middle itself and go down to 1.
TEST(SixteenBits, DoublesAreRoundedOnce) {
  EXPECT_EQ(Float16(1 + 0x1p-11 + 0x1p-40).bits, 0x3c01);
  EXPECT_EQ(BFloat16(1 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
}

TEST(Elements, AreLoadedByType) {
  const float f32[] = {1.5f, -2.25f};
  const Float16 f16[] = {Float16(1.5), Float16(-2.25)};
  const BFloat16 bf16[] = {BFloat16(1.5), BFloat16(-2.25)};
  EXPECT_EQ(load_element(f32, CONVNORM_F32, 1), -2.25);
  EXPECT_EQ(load_element(f16, CONVNORM_F16, 1), -2.25);
  EXPECT_EQ(load_element(bf16, CONVNORM_BF16, 1), -2.25);
}

}  // namespace
}  // namespace convnorm
