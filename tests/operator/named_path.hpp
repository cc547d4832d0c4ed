// For the tests of one path: whether it is there, and that it took part.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/inputs.hpp"
#include "support/runner.hpp"

namespace convnorm::test {

inline bool is_built(const std::string& path) {
  const std::vector<std::string> all = paths();
  return std::find(all.begin(), all.end(), path) != all.end();
}

// Skips where this build or device has no such path.
class NamedPathTest : public testing::Test {
 protected:
  explicit NamedPathTest(std::string path) : path_(std::move(path)) {}

  void SetUp() override {
    if (!is_built(path_)) GTEST_SKIP() << "this device has no path " << path_;
  }

  // Also that the path took part: a test that it refused would pass without it.
  void expect_right(const Inputs& in, int misalignment = 0) const {
    std::vector<std::string> taken;
    EXPECT_EQ(check_every_path(in, &taken, misalignment), "");
    EXPECT_NE(std::find(taken.begin(), taken.end(), path_), taken.end());
  }

  // Of this path alone, where what others round exceeds what the sums of a plain evaluation do.
  void expect_path_right(const Inputs& in, int misalignment = 0) const {
    for (const std::string& target : targets()) {
      const Outcome outcome = run(in, {.path = path_, .target = target, .misalignment = misalignment});
      if (target == "scalar" && !outcome.accepted) continue;
      ASSERT_TRUE(outcome.accepted) << outcome.refusal;
      ASSERT_EQ(outcome.fault, "");
      EXPECT_EQ(compare(in, Expected(in), outcome.y, outcome.arithmetic), "");
    }
  }

  // The same of every path, on white noise, and on a correlated signal with operands that start on no vector.
  void expect_right_on_both_fills(const std::string& line) const {
    SCOPED_TRACE(line);
    expect_right(make_inputs(line));
    expect_right(make_inputs(line, Fill::correlated), 1);
  }

 private:
  std::string path_;
};

}  // namespace convnorm::test
