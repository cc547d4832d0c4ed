// Signals and filters on which statistics of few inputs under the kernel go wrong if they are taken carelessly.
#pragma once

#include <cstdint>
#include <vector>

#include "support/inputs.hpp"

namespace convnorm::test {

inline constexpr const char* kRawAudio = "n=2,c=1,l=6001,o=64,k=10,s=5,g=64,bias=1,post=gelu";

// AR(1) with correlation 0.9999 on an offset of 5.
inline void make_correlated(std::vector<float>& x) {
  uint32_t state = 1;
  double value = 0;
  for (float& each : x) {
    state = state * 1664525u + 1013904223u;
    value = 0.9999 * value + 0.01414 * (static_cast<double>(state) / 2147483648.0 - 1.0);
    each = static_cast<float>(5.0 + value);
  }
}

inline void make_difference_filters(Inputs& in) {
  const int64_t taps = in.problem.k;
  for (size_t i = 0; i < in.w.size(); ++i) {
    const int64_t t = static_cast<int64_t>(i) % taps, o = static_cast<int64_t>(i) / taps;
    in.w[i] = t == o % (taps - 1) ? 1.0f : t == o % (taps - 1) + 1 ? -1.0f : 0.0f;
  }
}

}  // namespace convnorm::test
