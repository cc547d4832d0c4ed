// What the planners of the paths share.
#pragma once

#include <cstdint>

#include "descriptor/problem.hpp"

namespace convnorm::cuda {

// Of shared memory, by the system, for each CTA.
inline constexpr int kReservedBytes = 1 << 10;

// What a path may keep in the workspace beyond the bytes of y.
inline constexpr int64_t kWorkspaceAllowance = int64_t{64} << 20;

// The convolution and the ops after it.
inline Problem without_norm(Problem p) {
  p.groups = 0, p.affine = 0;
  return p;
}

constexpr int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace convnorm::cuda
