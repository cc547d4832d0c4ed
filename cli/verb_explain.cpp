// convnorm explain: which path a plan takes, what the others said, and what the machine allows at best.
#include <fmt/format.h>

#include <memory>

#include "cli/library.hpp"
#include "cli/options.hpp"
#include "cli/problem_list.hpp"
#include "cli/verbs.hpp"

namespace convnorm::cli {
namespace {

struct ExplainFlags {
  std::string line;
  PlanFlags plan;
  bool json = false;
};

ExitStatus explain(const ExplainFlags& flags) {
  const convnorm_plan_options options = flags.plan.options();
  flags.plan.note_unused();
  const Plan plan(parse_line(resolve_auto(flags.line, nullptr)), options);
  convnorm_machine machine{};
  if (!plan.on_gpu()) machine = measure_machine(options);
  std::string text = plan.explain(plan.on_gpu() ? nullptr : &machine, flags.json ? CONVNORM_JSON : CONVNORM_TEXT);
  if (!text.ends_with('\n')) text += '\n';
  fmt::print("{}", text);
  return kMet;
}

}  // namespace

void add_explain(CLI::App& app, ExitStatus& status) {
  const auto flags = std::make_shared<ExplainFlags>();
  CLI::App& verb = *app.add_subcommand("explain", "Show the chosen path, what the others said, and the floor");
  verb.add_option("LINE", flags->line, "problem line")->required();
  flags->plan.add_to(verb);
  add_json_flag(verb, flags->json);
  add_examples(verb, {"convnorm explain n=16,c=128,l=1024,o=256,k=3,p=1,g=32",
                      "convnorm explain n=1,c=64,l=4000,o=64,k=7,p=3,g=8 --path reference --json"});
  verb.callback([flags, &status] { status = explain(*flags); });
}

}  // namespace convnorm::cli
