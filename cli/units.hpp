// Numbers for people, with a unit that suits their size.
#pragma once

#include <string>

namespace convnorm::cli {

// 1234567, "B" -> "1.235 MB".
std::string with_unit(double value, const char* unit);

// 1234.5 -> "1.234 ms".
std::string duration(double microseconds);

}  // namespace convnorm::cli
