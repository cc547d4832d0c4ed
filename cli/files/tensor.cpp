#include "cli/files/tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace convnorm::cli {
namespace {

template <int kExponent, int kMantissa>
struct SmallFloat {
  static constexpr int kExponentBits = kExponent;
  static constexpr int kMantissaBits = kMantissa;
  uint16_t bits;
};
using Half = SmallFloat<5, 10>;
using BFloat16 = SmallFloat<8, 7>;

struct Boolean {
  uint8_t byte;
};

template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <class Visitor>
decltype(auto) visit_element(ElementType type, Visitor&& visitor) {
  switch (type) {
    case ElementType::f16:
      return visitor(Half{});
    case ElementType::bf16:
      return visitor(BFloat16{});
    case ElementType::f32:
      return visitor(float{});
    case ElementType::f64:
      return visitor(double{});
    case ElementType::i8:
      return visitor(int8_t{});
    case ElementType::u8:
      return visitor(uint8_t{});
    case ElementType::i16:
      return visitor(int16_t{});
    case ElementType::u16:
      return visitor(uint16_t{});
    case ElementType::i32:
      return visitor(int32_t{});
    case ElementType::u32:
      return visitor(uint32_t{});
    case ElementType::i64:
      return visitor(int64_t{});
    case ElementType::u64:
      return visitor(uint64_t{});
    case ElementType::boolean:
      return visitor(Boolean{});
  }
  throw FileError(fmt::format("element type number {} does not exist, use one of ElementType", static_cast<int>(type)));
}

// Both small formats round once, from double, which holds every source value but large 64-bit integers exactly.
template <class Target>
Target round_to_small_float(double value) {
  constexpr int kExponentBits = Target::kExponentBits;
  constexpr int kMantissaBits = Target::kMantissaBits;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr uint64_t kInfinity = ((uint64_t{1} << kExponentBits) - 1) << kMantissaBits;
  constexpr int kDoubleMantissaBits = 52;
  constexpr uint64_t kDoubleImplicitOne = uint64_t{1} << kDoubleMantissaBits;

  const auto bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = bits >> 63 << 15;
  const uint64_t fraction = bits & (kDoubleImplicitOne - 1);
  if (std::isnan(value)) {
    // Without the quiet bit a payload in the low bits alone would turn into infinity.
    constexpr uint64_t kQuiet = uint64_t{1} << (kMantissaBits - 1);
    return {static_cast<uint16_t>(sign | kInfinity | kQuiet | fraction >> (kDoubleMantissaBits - kMantissaBits))};
  }

  const int exponent = static_cast<int>(bits >> kDoubleMantissaBits & 0x7FF) - 1023;
  const int target_exponent = std::max(exponent, 1 - kBias);
  const int shift = kDoubleMantissaBits - kMantissaBits + target_exponent - exponent;
  uint64_t rounded = 0;
  if (shift <= kDoubleMantissaBits + 1) {
    const uint64_t significand = fraction | kDoubleImplicitOne;
    const uint64_t half = uint64_t{1} << (shift - 1);
    const uint64_t remainder = significand & (2 * half - 1);
    rounded = significand >> shift;
    if (remainder > half || (remainder == half && rounded % 2 == 1)) ++rounded;
  }
  // The implicit one of `rounded` adds to the exponent field, and so does a carry out of the mantissa.
  const uint64_t magnitude = (static_cast<uint64_t>(target_exponent + kBias - 1) << kMantissaBits) + rounded;
  return {static_cast<uint16_t>(sign | std::min(magnitude, kInfinity))};
}

float widen(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

float widen(Half value) {
  const uint32_t sign = uint32_t{value.bits} >> 15 << 31;
  const uint32_t magnitude = (uint32_t{value.bits} & 0x7FFF) << 13;
  const bool special = (value.bits & 0x7C00) == 0x7C00;
  constexpr float kRebias = 0x1p112f;
  const uint32_t rebiased =
      special ? magnitude | 0x7F800000 : std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * kRebias);
  return std::bit_cast<float>(sign | rebiased);
}

uint8_t widen(Boolean value) { return value.byte != 0; }

template <class T>
requires std::is_arithmetic_v<T> T widen(T value) { return value; }

// Folds the bits that a double cannot hold into one sticky bit far below the mantissa of the small formats, so that
// their rounding sees on which side of a tie the integer lies.
template <class T>
double to_double_sticky(T value) {
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    using Unsigned = std::make_unsigned_t<T>;
    const bool negative = value < 0;
    Unsigned magnitude = negative ? Unsigned{0} - static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
    constexpr Unsigned kLost = (Unsigned{1} << 11) - 1;
    if (magnitude >> 53 != 0 && (magnitude & kLost) != 0) magnitude = (magnitude & ~kLost) | (kLost + 1);
    const auto result = static_cast<double>(magnitude);
    return negative ? -result : result;
  } else {
    return static_cast<double>(value);
  }
}

template <class To, class From>
bool holds_exactly(From value) {
  if constexpr (std::is_floating_point_v<From>) {
    // Both bounds are powers of two (or zero) and exact, unlike numeric_limits<To>::max(); a NaN fails either test.
    const From upper = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    const From lower = std::is_signed_v<To> ? -upper : From{0};
    return value >= lower && value < upper && std::trunc(value) == value;
  } else {
    return std::in_range<To>(value);
  }
}

// Nothing when an integer or bool target cannot hold the value.
template <class To, class From>
std::optional<To> convert_value(From source) {
  const auto value = widen(source);
  if constexpr (is_small_float<To>) {
    return round_to_small_float<To>(to_double_sticky(value));
  } else if constexpr (std::is_same_v<To, Boolean>) {
    if (value != 0 && value != 1) return std::nullopt;
    return Boolean{static_cast<uint8_t>(value)};
  } else if constexpr (std::is_integral_v<To>) {
    if (!holds_exactly<To>(value)) return std::nullopt;
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class To>
void convert_elements(const Tensor& tensor, ElementType target, std::byte* out) {
  visit_element(tensor.type, [&]<class From>(From) {
    const auto count = static_cast<size_t>(element_count(tensor.shape));
    for (size_t i = 0; i < count; ++i) {
      From source;
      std::memcpy(&source, tensor.data.data() + i * sizeof(From), sizeof(From));
      const std::optional<To> converted = convert_value<To>(source);
      if (!converted) {
        throw FileError(fmt::format("element {} is {}, which {} cannot hold exactly; keep the type {} or use f64", i,
                                    widen(source), element_name(target), element_name(tensor.type)));
      }
      std::memcpy(out + i * sizeof(To), &*converted, sizeof(To));
    }
  });
}

template <class To>
std::vector<To> to_vector(const Tensor& tensor, ElementType target) {
  require_consistent(tensor);
  std::vector<To> values(static_cast<size_t>(element_count(tensor.shape)));
  convert_elements<To>(tensor, target, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

}  // namespace

size_t element_size(ElementType type) {
  return visit_element(type, []<class T>(T) { return sizeof(T); });
}

std::string_view element_name(ElementType type) {
  switch (type) {
    case ElementType::f16:
      return "f16";
    case ElementType::bf16:
      return "bf16";
    case ElementType::f32:
      return "f32";
    case ElementType::f64:
      return "f64";
    case ElementType::i8:
      return "i8";
    case ElementType::u8:
      return "u8";
    case ElementType::i16:
      return "i16";
    case ElementType::u16:
      return "u16";
    case ElementType::i32:
      return "i32";
    case ElementType::u32:
      return "u32";
    case ElementType::i64:
      return "i64";
    case ElementType::u64:
      return "u64";
    case ElementType::boolean:
      return "bool";
  }
  return "unknown";
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

int64_t element_count(std::span<const int64_t> shape) {
  if (shape.size() > kMaxRank) {
    throw FileError(fmt::format("the shape has {} dimensions, at most {} are possible", shape.size(), kMaxRank));
  }
  int64_t product = 1;
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) {
      throw FileError(
          fmt::format("dimension {} of shape {} is negative, give 0 or more", dimension, shape_text(shape)));
    }
    if (dimension == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dimension, &product)) {
      throw FileError(fmt::format("shape {} has more elements than 64 bits can count", shape_text(shape)));
    }
  }
  return empty ? 0 : product;
}

int64_t byte_count(ElementType type, std::span<const int64_t> shape) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(element_count(shape), static_cast<int64_t>(element_size(type)), &bytes)) {
    throw FileError(
        fmt::format("shape {} of {} has more bytes than 64 bits can count", shape_text(shape), element_name(type)));
  }
  return bytes;
}

void require_consistent(const Tensor& tensor) {
  const int64_t expected = byte_count(tensor.type, tensor.shape);
  if (std::cmp_not_equal(tensor.data.size(), expected)) {
    throw FileError(fmt::format("a tensor of shape {} and type {} needs {} bytes, its data has {}",
                                shape_text(tensor.shape), element_name(tensor.type), expected, tensor.data.size()));
  }
}

Tensor convert(const Tensor& tensor, ElementType type) {
  require_consistent(tensor);
  if (tensor.type == type) return tensor;
  Tensor result{type, tensor.shape, std::vector<std::byte>(static_cast<size_t>(byte_count(type, tensor.shape)))};
  visit_element(type, [&]<class To>(To) { convert_elements<To>(tensor, type, result.data.data()); });
  return result;
}

std::vector<float> to_float32(const Tensor& tensor) { return to_vector<float>(tensor, ElementType::f32); }

std::vector<double> to_float64(const Tensor& tensor) { return to_vector<double>(tensor, ElementType::f64); }

}  // namespace convnorm::cli
