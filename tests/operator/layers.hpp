// The layers of published models, as benchmarks and the command line know them.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "descriptor/problem.hpp"

namespace convnorm::test {

// Name and problem.
inline std::vector<std::pair<std::string, Problem>> layers() {
  std::ifstream file(CONVNORM_LAYERS);
  if (!file) throw std::runtime_error("cannot open " CONVNORM_LAYERS);
  std::vector<std::pair<std::string, Problem>> result;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    std::string name, line;
    if (words >> name >> line && name[0] != '#') result.emplace_back(name, parse_problem(line));
  }
  return result;
}

}  // namespace convnorm::test
