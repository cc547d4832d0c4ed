// convnorm check: holds the planned path against the fp64 reference.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "cli/check.hpp"
#include "cli/files/safetensors.hpp"
#include "cli/library.hpp"
#include "cli/memory.hpp"
#include "cli/options.hpp"
#include "cli/problem_list.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"
#include "cli/verbs.hpp"

namespace convnorm::cli {
namespace {

struct CheckFlags {
  ProblemFlags problem;
  PlanFlags plan;
  bool all_paths = false;
  bool full = false;
  bool allow_nan = false;
  bool json = false;
};

// The plans to check: the chosen one, or that of every path that accepts. A refusal of the only candidate is reported.
std::vector<std::shared_ptr<const Plan>> plans_of(const convnorm_problem& problem, const CheckFlags& flags) {
  convnorm_plan_options options = flags.plan.options();
  if (!flags.all_paths) return {std::make_shared<const Plan>(problem, options)};
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const std::string& path : path_names(options.device)) {
    options.path = path.c_str();
    std::string reason;
    if (auto plan = try_plan(problem, options, &reason)) plans.push_back(std::move(plan));
  }
  return plans;
}

ExitStatus check_problem(const NamedProblem& named, const CheckFlags& flags, const TensorMap& given,
                         Progress& progress) {
  const std::vector<std::shared_ptr<const Plan>> plans = plans_of(named.problem, flags);
  for (const auto& plan : plans) require_memory(memory_need(*plan));
  Origin origin;
  const Operands operands = complete(named.problem, given, flags.problem.seed, &origin);
  for (const std::string& note : origin.notes) print_note(note);
  const double budget = flags.full ? std::numeric_limits<double>::infinity() : kReferenceFlops;
  const CheckOptions options{.reference_flops = budget, .allow_nan = flags.allow_nan, .threads = flags.plan.threads};
  const Expectation expectation(operands, options);
  const double kappa = conditioning(operands, flags.plan.threads);
  ExitStatus status = kMet;
  for (const auto& plan : plans) {
    const Subject subject = planned_subject(plan);
    const CheckResult result = expectation.check(subject);
    Json record = problem_record(named.name, named.problem);
    add_check(record, subject, result);
    record["kappa"] = significant(kappa);
    if (!result.pass()) status = kNotMet;
    progress.clear();
    print_record(record, flags.json);
  }
  return status;
}

ExitStatus check(const CheckFlags& flags) {
  const std::vector<NamedProblem> problems = read_problems(flags.problem.source, flags.problem.only);
  if (flags.all_paths && !flags.plan.path.empty()) throw BadInput("--path and --all-paths exclude each other");
  flags.plan.note_unused();
  TensorMap given;
  if (!flags.problem.tensors.empty()) given = read_safetensors(flags.problem.tensors).tensors;
  Progress progress("check", problems.size());
  return for_each_problem(problems, progress, flags.json,
                          [&](const NamedProblem& named) { return check_problem(named, flags, given, progress); });
}

}  // namespace

void add_check(CLI::App& app, ExitStatus& status) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App& verb = *app.add_subcommand("check", "Compare the planned path with the fp64 reference");
  flags->problem.add_to(verb);
  flags->plan.add_to(verb);
  verb.add_flag("--all-paths", flags->all_paths, "check every path that accepts the problem");
  verb.add_flag("--full", flags->full, "compare every element, however long the reference takes");
  verb.add_flag("--allow-nan", flags->allow_nan, "NaN in both at the same place is right");
  add_json_flag(verb, flags->json);
  add_examples(verb, {"convnorm check n=16,c=128,l=1024,o=256,k=3,p=1,g=32",
                      "convnorm check n=2,c=6,l=20,o=8,k=3,p=1,g=4,dtype=bf16 --all-paths --json",
                      "convnorm check @bench/shapes/layers.txt --only dp_b1_512,tasnet_dw"});
  verb.callback([flags, &status] { status = check(*flags); });
}

}  // namespace convnorm::cli
