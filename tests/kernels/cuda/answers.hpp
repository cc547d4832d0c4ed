// What a planner answers: a config, or one sentence that says why there is none.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <variant>

namespace convnorm::cuda::test {

// The config; a refusal fails the test.
template <class Config>
Config accepted(const std::string& line, const std::variant<Config, std::string>& answer) {
  if (const auto* reason = std::get_if<std::string>(&answer)) {
    ADD_FAILURE() << line << ": " << *reason;
    return {};
  }
  return std::get<Config>(answer);
}

// Why there is no config; "" if there is one.
template <class Config>
std::string refusal_of(const std::variant<Config, std::string>& answer) {
  const auto* reason = std::get_if<std::string>(&answer);
  return reason == nullptr ? "" : *reason;
}

}  // namespace convnorm::cuda::test
