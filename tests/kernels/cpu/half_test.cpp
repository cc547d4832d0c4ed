// 16-bit conversions, every pattern on every instruction set, against the bitwise ones of the descriptor.
#include <cmath>
#include <limits>

#include "descriptor/elements.hpp"
#include "kernel_test.hpp"

namespace convnorm::test {
namespace {

constexpr int kPatterns = 65536;

template <class Element>
constexpr convnorm_dtype kDtype = std::is_same_v<Element, Float16> ? CONVNORM_F16 : CONVNORM_BF16;

template <class Element>
Element from_bits(int bits) {
  Element element;
  element.bits = static_cast<uint16_t>(bits);
  return element;
}

class HalfTest : public KernelTest {
 protected:
  template <class Element>
  void widens_every_pattern() {
    std::vector<Element> from(kPatterns);
    for (int i = 0; i < kPatterns; ++i) from[static_cast<size_t>(i)] = from_bits<Element>(i);
    std::vector<float> to(kPatterns);
    kernels().to_float(from.data(), kDtype<Element>, to.data(), kPatterns);
    for (int i = 0; i < kPatterns; ++i) {
      const float want = static_cast<float>(static_cast<double>(from[static_cast<size_t>(i)]));
      const float got = to[static_cast<size_t>(i)];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << std::hex << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << std::hex << i;
      }
    }
  }

  template <class Element>
  void narrows(const std::vector<float>& from) {
    std::vector<Element> to(from.size());
    kernels().from_float(from.data(), to.data(), kDtype<Element>, static_cast<int64_t>(from.size()), false);
    for (size_t i = 0; i < from.size(); ++i) {
      if (std::isnan(from[i])) {
        ASSERT_TRUE(std::isnan(static_cast<double>(to[i]))) << std::hex << std::bit_cast<uint32_t>(from[i]);
      } else {
        ASSERT_EQ(to[i].bits, Element(static_cast<double>(from[i])).bits)
            << std::hex << std::bit_cast<uint32_t>(from[i]);
      }
    }
  }

  // Each value, the tie between it and the next, and the neighbours of both in fp32.
  template <class Element>
  void rounds_to_nearest_even() {
    std::vector<float> from;
    for (int i = 0; i < kPatterns; ++i) {
      const auto element = from_bits<Element>(i);
      const auto value = static_cast<double>(element);
      if (!std::isfinite(value)) continue;
      auto next = static_cast<double>(from_bits<Element>(i + 1));
      // Past the largest value the tie is where the next one would be.
      if (!std::isfinite(next)) next = 2 * value - static_cast<double>(from_bits<Element>(i - 1));
      for (const double centre : {value, (value + next) / 2}) {
        const auto exact = static_cast<float>(centre);
        for (const float direction : {-HUGE_VALF, exact, HUGE_VALF}) from.push_back(std::nextafter(exact, direction));
      }
    }
    narrows<Element>(from);
  }

  template <class Element>
  void converts_tails() {
    for (int64_t count = 0; count <= 67; ++count) {
      Guarded half(static_cast<size_t>(count) * 2, 2);
      std::vector<float> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 30;
      kernels().from_float(values.data(), half.data(), kDtype<Element>, count, false);
      Row back(count);
      kernels().to_float(half.data(), kDtype<Element>, back.data(), count);
      EXPECT_EQ(back.values(), values);
      EXPECT_TRUE(half.bands_intact() && back.bands_intact()) << count;
    }
  }
};

TEST_P(HalfTest, WidensEveryF16) { widens_every_pattern<Float16>(); }
TEST_P(HalfTest, WidensEveryBF16) { widens_every_pattern<BFloat16>(); }
TEST_P(HalfTest, RoundsToNearestEvenF16) { rounds_to_nearest_even<Float16>(); }
TEST_P(HalfTest, RoundsToNearestEvenBF16) { rounds_to_nearest_even<BFloat16>(); }
TEST_P(HalfTest, ConvertsTailsF16) { converts_tails<Float16>(); }
TEST_P(HalfTest, ConvertsTailsBF16) { converts_tails<BFloat16>(); }

TEST_P(HalfTest, NarrowsSpecialValuesAndASweep) {
  std::vector<float> values = {HUGE_VALF, -HUGE_VALF, 0.0f,  -0.0f,   65519.996f,
                               65520.0f,  -65520.0f,  1e30f, 3.4e38f, -3.4e38f};
  for (const uint32_t payload : {1u, 0x1fffu, 0x2000u, 0x200000u, 0x400000u, 0x7fffffu}) {
    values.push_back(std::bit_cast<float>(0x7f800000u | payload));
    values.push_back(std::bit_cast<float>(0xff800000u | payload));
  }
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 9973)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  narrows<Float16>(values);
  narrows<BFloat16>(values);
}

CONVNORM_INSTANTIATE_KERNEL_TEST(HalfTest);

}  // namespace
}  // namespace convnorm::test
