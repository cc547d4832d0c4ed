// Plans take a path by its expected time. Held here against the times that were measured: bench/paths.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/limits.hpp"
#include "plan/plan.hpp"

namespace convnorm::cuda::test {
namespace {

// By problem line: path -> microseconds, of the paths of this build.
std::map<std::string, std::map<std::string, double>> measured(const char* file) {
  std::map<std::string, std::map<std::string, double>> times;
  std::ifstream in(file);
  for (std::string row; std::getline(in, row);) {
    if (row.empty() || row[0] == '#') continue;
    std::istringstream fields(row);
    std::string name, line, path;
    double us = 0;
    EXPECT_TRUE(fields >> name >> line >> path >> us) << row;
    const auto named = [&](const Implementation& each) { return each.name == path; };
    if (std::any_of(implementations().begin(), implementations().end(), named)) times[line][path] = us;
  }
  return times;
}

TEST(Choice, IsTheFastestPathOrNearlySo) {
  const DeviceLimits gpu = h200();
  const auto times = measured(CONVNORM_MEASURED_PATHS);
  ASSERT_GE(times.size(), 7u);
  for (const auto& [line, paths] : times) {
    const Problem problem = parse_problem(line);
    const PlanRequest request{problem, Sizes(problem), 1, gpu.architecture(), &gpu};
    const Choice choice = choose(implementations(), request, nullptr);
    const auto taken = paths.find(choice.implementation->name);
    ASSERT_NE(taken, paths.end()) << line << ": " << choice.implementation->name << " was not measured";
    for (const auto& [path, us] : paths) {
      EXPECT_LE(taken->second, 1.15 * us) << line << ": " << taken->first << " is taken, " << path << " is faster";
    }
  }
}

}  // namespace
}  // namespace convnorm::cuda::test
