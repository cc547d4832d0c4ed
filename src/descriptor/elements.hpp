// Elements of a tensor as doubles, exactly, and doubles as elements, rounded once to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "convnorm/convnorm.h"

namespace convnorm {

// A 16-bit floating-point number: a sign, kExponentBits of exponent and kMantissaBits of fraction.
template <int kExponentBits, int kMantissaBits>
struct Float16Bits {
  static_assert(1 + kExponentBits + kMantissaBits == 16);
  static constexpr int kMaxExponent = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kMinExponent = 1 - kMaxExponent;
  static constexpr int kInfinity = ((1 << kExponentBits) - 1) << kMantissaBits;

  uint16_t bits = 0;

  Float16Bits() = default;

  // Directly from double: by way of float, a value near a tie would be rounded twice. Assumes the default rounding
  // mode.
  explicit Float16Bits(double value) {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    int rest = kInfinity;
    if (std::isnan(value)) {
      rest |= 1 << (kMantissaBits - 1);
    } else if (magnitude < std::ldexp(1.0, kMaxExponent + 1)) {
      const int exponent = magnitude < std::ldexp(1.0, kMinExponent) ? kMinExponent : std::ilogb(magnitude);
      const double units = std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent));
      // The leading one of a normal number, or the carry of a rounding, steps the exponent field by itself.
      rest = ((exponent - kMinExponent) << kMantissaBits) + static_cast<int>(units);
    }
    bits = static_cast<uint16_t>(sign | rest);
  }

  explicit operator double() const {
    const int field = (bits & kInfinity) >> kMantissaBits;
    const int fraction = bits & ((1 << kMantissaBits) - 1);
    double magnitude;
    if ((bits & kInfinity) == kInfinity) {
      magnitude = fraction ? std::nan("") : HUGE_VAL;
    } else if (field == 0) {
      magnitude = std::ldexp(fraction, kMinExponent - kMantissaBits);
    } else {
      magnitude = std::ldexp(fraction + (1 << kMantissaBits), field - kMaxExponent - kMantissaBits);
    }
    return bits & 0x8000 ? -magnitude : magnitude;
  }
};

using Float16 = Float16Bits<5, 10>;
using BFloat16 = Float16Bits<8, 7>;
static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2);

// Calls body with a value of the element type that `dtype` stands for, so that a loop is compiled once per type.
template <class Body>
decltype(auto) with_element_type(convnorm_dtype dtype, Body&& body) {
  switch (dtype) {
    case CONVNORM_F16:
      return body(Float16{});
    case CONVNORM_BF16:
      return body(BFloat16{});
    default:
      return body(float{});
  }
}

inline double load_element(const void* tensor, convnorm_dtype dtype, int64_t index) {
  return with_element_type(
      dtype, [&](auto type) { return static_cast<double>(static_cast<const decltype(type)*>(tensor)[index]); });
}

}  // namespace convnorm
