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

// The time of the path that is taken over that of the fastest.
double excess(const std::string& line, const std::map<std::string, double>& paths) {
  const DeviceLimits gpu = h200();
  const Problem problem = parse_problem(line);
  const PlanRequest request{problem, Sizes(problem), 1, gpu.architecture(), &gpu};
  const std::string name = choose(implementations(), request, nullptr).implementation->name;
  const auto taken = paths.find(name);
  EXPECT_NE(taken, paths.end()) << line << ": " << name << " was not measured";
  if (taken == paths.end()) return 0;
  const auto by_time = [](const auto& a, const auto& b) { return a.second < b.second; };
  return taken->second / std::min_element(paths.begin(), paths.end(), by_time)->second;
}

constexpr double kMostExcess = 1.15;

TEST(Choice, IsTheFastestPathOrNearlySo) {
  const auto times = measured(CONVNORM_MEASURED_PATHS);
  ASSERT_GE(times.size(), 7u);
  for (const auto& [line, paths] : times) EXPECT_LE(excess(line, paths), kMostExcess) << line;
}

TEST(Choice, IsSoForNineInTenRandomProblems) {
  const auto times = measured(CONVNORM_MEASURED_RANDOM_PATHS);
  ASSERT_GE(times.size(), 70u);
  for (const Implementation& each : implementations()) {
    const auto has = [&](const auto& row) { return row.second.count(each.name) > 0; };
    if (std::none_of(times.begin(), times.end(), has)) GTEST_SKIP() << "not timed for builds that ask " << each.name;
  }
  std::string others;
  size_t count = 0;
  for (const auto& [line, paths] : times) {
    const double ratio = excess(line, paths);
    if (ratio > kMostExcess) ++count, others += line + ": " + std::to_string(ratio) + " times the fastest\n";
  }
  EXPECT_LE(10 * count, times.size()) << others;
}

}  // namespace
}  // namespace convnorm::cuda::test
