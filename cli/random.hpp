// Seeded numbers that are the same everywhere: std::normal_distribution may differ between standard libraries, so the
// generator (xoshiro256++) and the Box-Muller transform are written out.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace convnorm::cli {

class Random {
 public:
  // Each `stream` of a seed is its own sequence, so that drawing one tensor more does not change the others.
  Random(uint64_t seed, std::string_view stream) {
    uint64_t mixed = seed;
    for (const char c : stream) mixed = (mixed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    for (uint64_t& word : state_) word = split_mix(mixed);
  }

  uint64_t bits() {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  // In [low, high].
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(uniform() * static_cast<double>(high - low + 1));
  }

  double normal() {
    if (spare_ready_) {
      spare_ready_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    const double angle = 2.0 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    spare_ready_ = true;
    return radius * std::cos(angle);
  }

 private:
  static uint64_t split_mix(uint64_t& counter) {
    uint64_t z = (counter += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  std::array<uint64_t, 4> state_;
  double spare_ = 0;
  bool spare_ready_ = false;
};

}  // namespace convnorm::cli
