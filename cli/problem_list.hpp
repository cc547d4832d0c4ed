// Problems by line or by list: `n=1,...` or `@layers.txt`.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "cli/files/tensor.hpp"
#include "convnorm/convnorm.h"

namespace convnorm::cli {

struct NamedProblem {
  std::string name;  // empty for a bare line
  convnorm_problem problem;
};

// A list holds one problem per row, `name line` or `line`, separated by tabs or spaces; `#` starts a comment, and what
// follows the line is one too. Throws BadInput naming the list, as `name`, and the row.
std::vector<NamedProblem> read_list(std::istream& list, const std::string& name);

// A line, or after an `@` the name of a file that holds a list; with `only`, the problems of those names.
std::vector<NamedProblem> read_problems(const std::string& source, const std::vector<std::string>& only);

// `n=auto`, `c=auto` and `l=auto` take the sizes of `x`, which is null where there is no file to take them from.
std::string resolve_auto(const std::string& line, const Tensor* x);

bool is_channels_last(const std::string& line);

}  // namespace convnorm::cli
