// What the planners of the paths share.
#pragma once

#include <cstdint>

namespace convnorm::cuda {

// Of shared memory, by the system, for each CTA.
inline constexpr int kReservedBytes = 1 << 10;

// What a path may keep in the workspace beyond the bytes of y.
inline constexpr int64_t kWorkspaceAllowance = int64_t{64} << 20;

constexpr int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace convnorm::cuda
