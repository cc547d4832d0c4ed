// Words for people: failures as one sentence, and values as they are quoted in them.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "descriptor/problem.hpp"

namespace convnorm {

template <class... Args>
[[noreturn]] void fail(convnorm_status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(status, fmt::format(format, std::forward<Args>(args)...));
}

// In quotes, shortened and with control characters escaped: a message stays one readable line whatever was typed.
std::string in_quotes(std::string_view text);

// Shortest decimal that reads back as the same double, with the exponent written as people do: 1e-8.
std::string shortest(double value);

// FNV-1a, 64 bits, continued from `value`: no table, no seed, the same on every machine.
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325;
uint64_t fnv1a(std::string_view bytes, uint64_t value = kFnvStart);

// The candidate that a typing error most likely meant; empty if none is near.
std::string_view closest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace convnorm
