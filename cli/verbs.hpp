// The verbs: each adds its subcommand, whose callback leaves the exit status in `status`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/problem_list.hpp"
#include "cli/progress.hpp"

namespace CLI {
class App;
}

namespace convnorm::cli {

void add_run(CLI::App& app, ExitStatus& status);
void add_check(CLI::App& app, ExitStatus& status);
void add_bench(CLI::App& app, ExitStatus& status);
void add_explain(CLI::App& app, ExitStatus& status);
void add_info(CLI::App& app, ExitStatus& status);
void add_selftest(CLI::App& app, ExitStatus& status);

// Calls `verb` for each problem and returns the worst status. One bad problem of a list does not lose the others: it is
// reported, with `json` also as an object with `error`.
ExitStatus for_each_problem(const std::vector<NamedProblem>& problems, Progress& progress, bool json,
                            const std::function<ExitStatus(const NamedProblem&)>& verb);

// The sentence for the user if `action` fails on bad input or for lack of memory; empty if it does not.
std::string failure_of(const std::function<void()>& action);

// An error or a remark is one line on stderr, with the same prefix everywhere.
void print_error(const std::string& what);
void print_note(const std::string& what);

}  // namespace convnorm::cli
