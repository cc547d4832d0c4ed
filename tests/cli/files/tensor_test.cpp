#include "cli/files/tensor.hpp"

#include <cmath>
#include <limits>

#include "tests/cli/files/support.hpp"

namespace convnorm::cli::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class To, class From>
To convert_one(ElementType from, From value, ElementType to) {
  const Tensor result = convert(make_tensor<From>(from, {1}, {value}), to);
  To converted;
  EXPECT_EQ(result.data.size(), sizeof converted);
  std::memcpy(&converted, result.data.data(), sizeof converted);
  return converted;
}

uint16_t half(double value) { return convert_one<uint16_t>(ElementType::f64, value, ElementType::f16); }
uint16_t bfloat(double value) { return convert_one<uint16_t>(ElementType::f64, value, ElementType::bf16); }

TEST(Tensor, HalfRoundsToNearestEven) {
  EXPECT_EQ(half(1.0), 0x3C00);
  EXPECT_EQ(half(-2.0), 0xC000);
  EXPECT_EQ(half(1 + 0x1p-11), 0x3C00);
  EXPECT_EQ(half(1 + 3 * 0x1p-11), 0x3C02);
  EXPECT_EQ(half(1 + 0x1p-11 + 0x1p-40), 0x3C01);
  EXPECT_EQ(half(65504), 0x7BFF);
  EXPECT_EQ(half(65519.99), 0x7BFF);
  EXPECT_EQ(half(65520), 0x7C00);
  EXPECT_EQ(half(-1e300), 0xFC00);
  EXPECT_EQ(half(0x1p-24), 0x0001);
  EXPECT_EQ(half(0x1p-25), 0x0000);
  EXPECT_EQ(half(0x1.000001p-25), 0x0001);
  EXPECT_EQ(half(0x1.FFFp-15), 0x0400);
  EXPECT_EQ(half(-0.0), 0x8000);
  EXPECT_EQ(half(std::numeric_limits<double>::denorm_min()), 0x0000);
  EXPECT_EQ(half(std::numeric_limits<double>::infinity()), 0x7C00);
}

TEST(Tensor, BFloatRoundsToNearestEven) {
  EXPECT_EQ(bfloat(1.0), 0x3F80);
  EXPECT_EQ(bfloat(1 + 0x1p-8), 0x3F80);
  EXPECT_EQ(bfloat(1 + 3 * 0x1p-8), 0x3F82);
  EXPECT_EQ(bfloat(1 + 0x1p-8 + 0x1p-50), 0x3F81);
  EXPECT_EQ(bfloat(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(bfloat(0x1p-133), 0x0001);
}

TEST(Tensor, SmallFloatsSurviveTheWayThroughFloat) {
  for (const ElementType type : {ElementType::f16, ElementType::bf16}) {
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    const Tensor original = make_tensor(type, {65536}, all);
    const Tensor back = convert(convert(original, ElementType::f32), type);
    for (size_t i = 0; i < all.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, back.data.data() + 2 * i, 2);
      const uint16_t infinity = type == ElementType::f16 ? 0x7C00 : 0x7F80;
      const uint16_t quiet = type == ElementType::f16 ? 0x0200 : 0x0040;
      const bool nan = (all[i] & 0x7FFF) > infinity;
      ASSERT_EQ(bits, nan ? all[i] | quiet : all[i]);
    }
  }
}

TEST(Tensor, LargeIntegersRoundOnce) {
  // Just above a tie of bf16, yet a double cannot tell: rounding twice would give the even neighbour below.
  const int64_t above_tie = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  EXPECT_EQ(convert_one<uint16_t>(ElementType::i64, above_tie, ElementType::bf16), 0x5E81);
  EXPECT_EQ(convert_one<uint16_t>(ElementType::i64, -above_tie, ElementType::bf16), 0xDE81);
  EXPECT_EQ(convert_one<uint16_t>(ElementType::i64, above_tie - 1, ElementType::bf16), 0x5E80);
  EXPECT_EQ(convert_one<float>(ElementType::u64, std::numeric_limits<uint64_t>::max(), ElementType::f32), 0x1p64f);
  EXPECT_EQ(convert_one<uint16_t>(ElementType::i64, std::numeric_limits<int64_t>::min(), ElementType::bf16), 0xDF00);
}

TEST(Tensor, IntegersTakeOnlyWhatTheyHold) {
  EXPECT_EQ(convert_one<int8_t>(ElementType::f64, -128.0, ElementType::i8), -128);
  EXPECT_EQ(convert_one<uint64_t>(ElementType::f32, 0x1p63f, ElementType::u64), uint64_t{1} << 63);
  EXPECT_EQ(convert_one<int64_t>(ElementType::f64, -0x1p63, ElementType::i64), std::numeric_limits<int64_t>::min());
  for (const double value : {128.0, 0.5, -129.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(convert_one<int8_t>(ElementType::f64, value, ElementType::i8), FileError) << value;
  }
  EXPECT_THROW(convert_one<int64_t>(ElementType::f64, 0x1p63, ElementType::i64), FileError);
  EXPECT_THROW(convert_one<uint32_t>(ElementType::i64, int64_t{-1}, ElementType::u32), FileError);
  EXPECT_THROW(convert_one<uint8_t>(ElementType::i32, 2, ElementType::boolean), FileError);
  EXPECT_THAT(refusal([] {
                convert(make_tensor<float>(ElementType::f32, {2}, {1, 2.5F}), ElementType::i8);
              }),
              HasSubstr("element 1 is 2.5, which i8 cannot hold exactly"));
}

TEST(Tensor, VectorsOfEveryType) {
  EXPECT_THAT(to_float32(make_tensor<uint8_t>(ElementType::boolean, {3}, {0, 1, 7})), ElementsAre(0, 1, 1));
  EXPECT_THAT(to_float32(make_tensor<uint16_t>(ElementType::bf16, {2}, {0x3F80, 0xC040})), ElementsAre(1, -3));
  EXPECT_THAT(to_float64(make_tensor<uint16_t>(ElementType::f16, {2}, {0x0001, 0xFC00})),
              ElementsAre(0x1p-24, -HUGE_VAL));
  EXPECT_THAT(to_float64(make_tensor<int64_t>(ElementType::i64, {1}, {-5})), ElementsAre(-5));
}

TEST(Tensor, ShapesThatCannotBe) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  EXPECT_THROW(element_count(std::vector<int64_t>{2, -1}), FileError);
  EXPECT_THROW(element_count(std::vector<int64_t>{kLarge, 2}), FileError);
  EXPECT_THROW(element_count(std::vector<int64_t>{kLarge, 2, 0}), FileError);
  EXPECT_THROW(element_count(std::vector<int64_t>(kMaxRank + 1, 1)), FileError);
  EXPECT_THROW(byte_count(ElementType::f32, std::vector<int64_t>{kLarge}), FileError);
  EXPECT_EQ(element_count(std::vector<int64_t>{kLarge, 0}), 0);
  EXPECT_EQ(element_count(std::vector<int64_t>{}), 1);
  EXPECT_THAT(refusal([] {
                to_float32({ElementType::f32, {2, 3}, std::vector<std::byte>(4)});
              }),
              HasSubstr("shape (2, 3) and type f32 needs 24 bytes, its data has 4"));
}

}  // namespace
}  // namespace convnorm::cli::testing
