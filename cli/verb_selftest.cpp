// convnorm selftest: every compiled path on every instruction set of this machine and on its GPU, against the
// reference.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "cli/check.hpp"
#include "cli/library.hpp"
#include "cli/options.hpp"
#include "cli/problem_list.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"
#include "cli/verbs.hpp"
#include "selftest_problems.hpp"

namespace convnorm::cli {
namespace {

struct Tally {
  int checks = 0;
  int failures = 0;
  std::set<std::string> paths;
  std::set<std::string> targets;
};

// One plan for each path and target that accept; a path that runs the same on all targets is met once.
std::vector<std::shared_ptr<const Plan>> all_plans(const convnorm_problem& problem, convnorm_device device,
                                                   int32_t threads) {
  std::vector<std::shared_ptr<const Plan>> plans;
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<std::string> targets;
  if (device == CONVNORM_CPU) targets = target_names();
  targets.emplace_back();  // what a plan takes unasked, and all that a build without instruction sets has
  for (const std::string& target : targets) {
    for (const std::string& path : path_names(device)) {
      convnorm_plan_options options;
      convnorm_plan_options_init(&options);
      options.device = device;
      options.threads = threads;
      options.path = path.c_str();
      options.target = target.empty() ? nullptr : target.c_str();
      std::string reason;
      auto plan = try_plan(problem, options, &reason);
      if (plan && seen.emplace(plan->path(), plan->target()).second) plans.push_back(std::move(plan));
    }
  }
  return plans;
}

ExitStatus test_problem(const NamedProblem& named, const std::vector<convnorm_device>& devices, int32_t threads,
                        bool json, Progress& progress, Tally& tally) {
  Origin origin;
  const Operands operands = complete(named.problem, {}, 0, &origin);
  const Expectation expectation(operands, {.threads = threads});
  ExitStatus status = kMet;
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const convnorm_device device : devices)
    std::ranges::move(all_plans(named.problem, device, threads), std::back_inserter(plans));
  for (const auto& plan : plans) {
    const Subject subject = planned_subject(plan);
    const CheckResult result = expectation.check(subject);
    ++tally.checks;
    tally.paths.insert(subject.path);
    tally.targets.insert(subject.target);
    if (!result.pass()) {
      ++tally.failures;
      status = kNotMet;
    }
    if (json || !result.pass()) {
      Json record = problem_record(named.name, named.problem);
      add_check(record, subject, result);
      progress.clear();
      print_record(record, json);
    }
  }
  return status;
}

// As in the other verbs, --threads asks for the CPU.
std::vector<convnorm_device> devices_of(const std::string& device, int32_t threads) {
  if (device == "cpu") return {CONVNORM_CPU};
  if (device == "cuda") return {CONVNORM_CUDA};
  if (threads > 0 || !gpu_is_usable()) return {CONVNORM_CPU};
  return {CONVNORM_CPU, CONVNORM_CUDA};
}

ExitStatus selftest(const std::vector<convnorm_device>& devices, int32_t threads, bool json) {
  std::istringstream list{std::string(kSelftestProblems)};
  const std::vector<NamedProblem> problems = read_list(list, "the built-in list");
  if (devices.back() == CONVNORM_CUDA && !gpu_is_usable()) {
    // Fails with the reason, once instead of for each problem.
    convnorm_plan_options options;
    convnorm_plan_options_init(&options);
    options.device = CONVNORM_CUDA;
    const Plan probe(problems.front().problem, options);
  }
  Progress progress("selftest", problems.size());
  Tally tally;
  const ExitStatus status = for_each_problem(problems, progress, json, [&](const NamedProblem& named) {
    return test_problem(named, devices, threads, json, progress, tally);
  });
  print_record({{"problems", problems.size()},
                {"checks", tally.checks},
                {"failures", tally.failures},
                {"paths", tally.paths},
                {"targets", tally.targets},
                {"pass", status == kMet}},
               json);
  return status;
}

}  // namespace

void add_selftest(CLI::App& app, ExitStatus& status) {
  struct Flags {
    std::string device = "auto";
    int32_t threads = 0;
    bool json = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App& verb =
      *app.add_subcommand("selftest", "Check every path on every instruction set of this machine, and on its GPU");
  add_device_flag(verb, flags->device, "the CPU, and a GPU that this build has code for");
  add_threads_flag(verb, flags->threads);
  add_json_flag(verb, flags->json);
  add_examples(verb, {"convnorm selftest", "convnorm selftest --json --threads 1", "convnorm selftest --device cuda"});
  verb.callback(
      [flags, &status] { status = selftest(devices_of(flags->device, flags->threads), flags->threads, flags->json); });
}

}  // namespace convnorm::cli
