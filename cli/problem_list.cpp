#include "cli/problem_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "cli/failure.hpp"
#include "cli/files/input_file.hpp"
#include "cli/library.hpp"

namespace convnorm::cli {
namespace {

// A row longer than this is no problem line, and is not kept in memory either.
constexpr size_t kLongestRow = 4096;

NamedProblem parse_row(const std::string& row) {
  std::istringstream words(row);
  std::string first, second;
  words >> first >> second;
  // A name holds no `=`, every line does.
  if (first.find('=') != std::string::npos) return {"", parse_line(resolve_auto(first, nullptr))};
  if (second.empty()) throw BadInput(fmt::format("{} is neither a problem line nor a name with one", printable(first)));
  return {first, parse_line(resolve_auto(second, nullptr))};
}

bool read_row(std::istream& file, std::string& row) {
  row.clear();
  for (int c; (c = file.get()) != std::char_traits<char>::eof();) {
    if (c == '\n') return true;
    if (c == '\0') throw BadInput("the row holds a zero byte; a problem list is plain text");
    if (row.size() == kLongestRow) throw BadInput(fmt::format("the row is longer than {} bytes", kLongestRow));
    row.push_back(static_cast<char>(c));
  }
  return !row.empty();
}

}  // namespace

std::vector<NamedProblem> read_list(std::istream& list, const std::string& name) {
  std::vector<NamedProblem> problems;
  std::string row;
  int number = 1;
  try {
    for (; read_row(list, row); ++number) {
      row.resize(std::min(row.size(), row.find('#')));
      if (row.find_first_not_of(" \t\r") != std::string::npos) problems.push_back(parse_row(row));
    }
  } catch (const BadInput& failure) {
    throw BadInput(fmt::format("{}:{}: {}", name, number, failure.what()));
  }
  if (problems.empty()) throw BadInput(fmt::format("{} holds no problem line", name));
  return problems;
}

std::vector<NamedProblem> read_problems(const std::string& source, const std::vector<std::string>& only) {
  if (!source.starts_with('@')) {
    if (!only.empty()) throw BadInput("--only chooses from a list; give @file instead of a line");
    return {{"", parse_line(resolve_auto(source, nullptr))}};
  }
  const std::string name = source.substr(1);
  std::ifstream file(name);
  if (!file || file.peek() == std::char_traits<char>::eof()) {
    throw BadInput(fmt::format("{} cannot be read or is empty; give a list of problem lines", printable(name)));
  }
  std::vector<NamedProblem> problems = read_list(file, name);
  if (only.empty()) return problems;
  std::vector<NamedProblem> chosen;
  for (const std::string& wanted : only) {
    const auto found = std::ranges::find(problems, wanted, &NamedProblem::name);
    if (found == problems.end()) {
      std::vector<std::string_view> names;
      for (const NamedProblem& problem : problems) names.emplace_back(problem.name);
      throw BadInput(
          fmt::format("--only {}: {} has no such name; it has {}", wanted, printable(name), fmt::join(names, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

bool is_channels_last(const std::string& line) { return ("," + line + ",").find(",layout=nlc,") != std::string::npos; }

std::string resolve_auto(const std::string& line, const Tensor* x) {
  const bool channels_last = is_channels_last(line);
  std::istringstream items(line);
  std::vector<std::string> resolved;
  for (std::string item; std::getline(items, item, ',');) {
    const size_t axis = item == "n=auto" ? 0 : item == "c=auto" ? (channels_last ? 2 : 1) : channels_last ? 1 : 2;
    if (item == "n=auto" || item == "c=auto" || item == "l=auto") {
      if (x == nullptr) throw BadInput(item + " takes its size from a file of x; give a number, or `run` with --input");
      if (x->shape.size() != 3) {
        throw BadInput(fmt::format("{} needs an x of three dimensions, found shape {}", item, shape_text(x->shape)));
      }
      item.replace(2, std::string::npos, std::to_string(x->shape[axis]));
    }
    resolved.push_back(item);
  }
  return fmt::format("{}", fmt::join(resolved, ","));
}

}  // namespace convnorm::cli
