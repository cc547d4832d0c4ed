// What the planners of the paths share.
#pragma once

#include <cstdint>

namespace convnorm::cuda {

// Of shared memory, by the system, for each CTA.
inline constexpr int kReservedBytes = 1 << 10;

constexpr int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace convnorm::cuda
