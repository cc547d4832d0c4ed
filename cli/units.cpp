#include "cli/units.hpp"

#include <fmt/format.h>

#include <iterator>

namespace convnorm::cli {

std::string with_unit(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  for (; value >= 999.95 && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  return fmt::format("{:.4g} {}{}", value, kPrefixes[prefix], unit);
}

std::string duration(double microseconds) {
  if (microseconds < 999.95) return fmt::format("{:.4g} us", microseconds);
  if (microseconds < 999.95e3) return fmt::format("{:.4g} ms", microseconds * 1e-3);
  return fmt::format("{:.4g} s", microseconds * 1e-6);
}

}  // namespace convnorm::cli
