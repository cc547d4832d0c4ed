// convnorm: Conv1d -> GroupNorm -> activation from the command line. Exit status 0, 1 when a result is not met (a check
// fails, a timing is refused), 2 for bad input.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cli/interrupt.hpp"
#include "cli/options.hpp"
#include "cli/verbs.hpp"

namespace convnorm::cli {
namespace {

constexpr void (*kVerbs[])(CLI::App&, ExitStatus&) = {&add_run,     &add_check, &add_bench,
                                                      &add_explain, &add_info,  &add_selftest};

int run_program(int argc, char** argv) {
  CLI::App app("Conv1d, GroupNorm and activation in one pass: y = post(GroupNorm_g(pre(conv1d(x, w) + b)))",
               "convnorm");
  app.set_version_flag("--version", std::string("convnorm ") + convnorm_version());
  app.require_subcommand(0, 1);  // at least one is demanded below, after unexpected words were reported
  add_examples(app, {"convnorm run n=1,c=2,l=auto,o=8,k=3,p=1,g=4,post=silu --input song.wav --output y.npy",
                     "convnorm check n=16,c=128,l=1024,o=256,k=3,p=1,g=32",
                     "convnorm bench @bench/shapes/layers.txt --only default --json", "convnorm run --help"});
  ExitStatus status = kMet;
  for (const auto add_verb : kVerbs) add_verb(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const auto chosen = app.get_subcommands();
    const std::string verb = chosen.empty() ? "" : " " + chosen.front()->get_name();
    print_error(fmt::format("{}; see `convnorm{} --help`", error.what(), verb));
    return kBadInput;
  }
  if (app.get_subcommands().empty()) throw BadInput("a verb is needed; see `convnorm --help`");
  return status;
}

}  // namespace
}  // namespace convnorm::cli

int main(int argc, char** argv) {
  using namespace convnorm::cli;
  install_interrupt_handler();
  int status = kMet;
  std::string failure = failure_of([&] { status = run_program(argc, argv); });
  // What was printed is part of the result: losing it on a full disk or a closed stream is no success.
  if (failure.empty() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    failure = fmt::format("standard output cannot be written ({})", std::strerror(errno));
  }
  if (failure.empty()) return status;
  try {
    print_error(failure);
  } catch (const std::exception&) {
    // Standard error is gone as well: the exit status is all that is left to say it.
  }
  return kBadInput;
}
