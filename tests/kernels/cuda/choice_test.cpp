// Plans take a path by its expected time. Held here against the times that were measured: bench/paths.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <vector>

#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/limits.hpp"
#include "plan/plan.hpp"

namespace convnorm::cuda::test {
namespace {

// By problem line: path -> microseconds, of the paths of this build.
using Times = std::map<std::string, std::map<std::string, double>>;

Times measured(const char* file) {
  Times times;
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

// Those of this build that have been timed.
std::vector<Implementation> timed(const Times& times) {
  std::vector<Implementation> result;
  std::copy_if(implementations().begin(), implementations().end(), std::back_inserter(result), [&](const auto& each) {
    return std::any_of(times.begin(), times.end(), [&](const auto& row) { return row.second.count(each.name) > 0; });
  });
  return result;
}

// The time of the path that is taken, of those that have been timed, over that of the fastest.
double excess(const std::vector<Implementation>& among, const std::string& line,
              const std::map<std::string, double>& paths) {
  const DeviceLimits gpu = h200();
  const Problem problem = parse_problem(line);
  const PlanRequest request{problem, Sizes(problem), 1, gpu.architecture(), &gpu};
  const std::string name = choose(among, request, nullptr).implementation->name;
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
  const std::vector<Implementation> among = timed(times);
  for (const auto& [line, paths] : times) EXPECT_LE(excess(among, line, paths), kMostExcess) << line;
}

TEST(Choice, IsSoForNineteenInTwentyRandomProblems) {
  const auto times = measured(CONVNORM_MEASURED_RANDOM_PATHS);
  ASSERT_GE(times.size(), 120u);
  const std::vector<Implementation> among = timed(times);
  std::string others;
  size_t count = 0;
  for (const auto& [line, paths] : times) {
    const double ratio = excess(among, line, paths);
    if (ratio > kMostExcess) ++count, others += line + ": " + std::to_string(ratio) + " times the fastest\n";
  }
  EXPECT_LE(20 * count, times.size()) << others;
}

}  // namespace
}  // namespace convnorm::cuda::test
