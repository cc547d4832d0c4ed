#include "cli/verbs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "cli/library.hpp"
#include "cli/report.hpp"

namespace convnorm::cli {
namespace {

// A message is one line, whatever the text it quotes.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace

void print_error(const std::string& what) { fmt::print(stderr, "convnorm: error: {}\n", one_line(what)); }
void print_note(const std::string& what) { fmt::print(stderr, "convnorm: note: {}\n", one_line(what)); }

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const std::bad_alloc&) {
    return "memory does not suffice for this problem; make n, l or the channels smaller";
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

ExitStatus for_each_problem(const std::vector<NamedProblem>& problems, Progress& progress, bool json,
                            const std::function<ExitStatus(const NamedProblem&)>& verb) {
  ExitStatus worst = kMet;
  for (const NamedProblem& named : problems) {
    const std::string failure = failure_of([&] { worst = std::max(worst, verb(named)); });
    if (!failure.empty()) {
      worst = kBadInput;
      progress.clear();
      print_error(named.name.empty() ? failure : fmt::format("{}: {}", named.name, failure));
      if (json) {
        Json record = problem_record(named.name, named.problem);
        record["error"] = failure;
        print_record(record, true);
      }
    }
    progress.finish_step();
  }
  progress.clear();
  return worst;
}

}  // namespace convnorm::cli
