// Inputs that every part of the tests shares.
#pragma once

#include <cstdint>
#include <vector>

namespace convnorm::test {

// Deterministic values that are exact in every element type of ours.
inline float s_fill_x(int64_t i) { return static_cast<float>((37 * i + 11) % 101 - 50) / 32; }
inline float s_fill_w(int64_t i) { return static_cast<float>((53 * i + 7) % 61 - 30) / 64; }
inline float s_fill_bias(int64_t i) { return static_cast<float>((29 * i + 3) % 17 - 8) / 8; }
inline float s_fill_gamma(int64_t i) { return 1 + static_cast<float>((5 * i + 1) % 9 - 4) / 8; }
inline float s_fill_beta(int64_t i) { return static_cast<float>((7 * i + 2) % 13 - 6) / 8; }

template <class Fill>
std::vector<float> filled(int64_t count, Fill fill) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = fill(i);
  return values;
}

}  // namespace convnorm::test
