// For the tests of one path: whether it is there, and that it took part.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/inputs.hpp"
#include "support/runner.hpp"

namespace convnorm::test {

inline bool is_built(const std::string& path) {
  const std::vector<std::string> all = paths();
  return std::find(all.begin(), all.end(), path) != all.end();
}

// Also that the path took part: a test that it refused would pass without it.
inline void expect_right(const std::string& path, const Inputs& in, int misalignment = 0) {
  std::vector<std::string> taken;
  EXPECT_EQ(check_every_path(in, &taken, misalignment), "");
  EXPECT_NE(std::find(taken.begin(), taken.end(), path), taken.end());
}

}  // namespace convnorm::test
