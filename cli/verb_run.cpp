// convnorm run: computes y from files, from drawn tensors, or from both.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>

#include "cli/files/input_file.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/safetensors.hpp"
#include "cli/inputs.hpp"
#include "cli/interrupt.hpp"
#include "cli/library.hpp"
#include "cli/memory.hpp"
#include "cli/options.hpp"
#include "cli/problem_list.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"
#include "cli/subject.hpp"
#include "cli/verbs.hpp"

namespace convnorm::cli {
namespace fs = std::filesystem;

namespace {

struct RunFlags {
  std::string line;
  std::string input;
  std::string tensors;
  std::string output;
  std::string save_tensors;
  uint64_t seed = 0;
  PlanFlags plan;
  bool json = false;
};

// Plans by problem, so that the files of a directory share them.
class Runner {
 public:
  explicit Runner(const RunFlags& flags) : flags_(flags), options_(flags.plan.options()) {
    if (!flags.tensors.empty()) given_ = read_safetensors(flags.tensors).tensors;
    if (!flags.input.empty() && given_.contains("x")) {
      throw BadInput(fmt::format("x is given by --input and by --tensors {}; leave one out", printable(flags.tensors)));
    }
  }

  // `input` may be empty. Returns what was done; nothing is written when it throws.
  Json run(const fs::path& input, const fs::path& output) {
    TensorMap tensors = given_;
    if (!input.empty()) tensors["x"] = read_x(input, is_channels_last(flags_.line));
    const auto x = tensors.find("x");
    const convnorm_problem problem = parse_line(resolve_auto(flags_.line, x == tensors.end() ? nullptr : &x->second));
    const std::shared_ptr<const Plan> plan = plan_of(problem);
    MemoryNeed need = memory_need(*plan);
    for (const auto& [name, tensor] : tensors)
      need.host -= static_cast<double>(tensor.data.size());  // is there already
    require_memory(need);
    Origin origin;
    const Operands operands = complete(problem, std::move(tensors), flags_.seed, &origin);
    if (!origin.drawn.empty()) {
      origin.notes.push_back(fmt::format("drawn with --seed {}: {}", flags_.seed, fmt::join(origin.drawn, ", ")));
    }
    const auto start = std::chrono::steady_clock::now();
    const Tensor y = execute(plan, operands);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    {
      const UninterruptedWrite guard;
      if (!flags_.save_tensors.empty()) write_safetensors(flags_.save_tensors, {operands.tensors, {}});
      write_npy(output, y);
    }
    Json record = problem_record("", problem);
    if (!input.empty()) record["input"] = input.string();
    record["output"] = output.string();
    record["shape"] = y.shape;
    record["dtype"] = dtype_name(problem.dtype);
    record["path"] = plan->path();
    record["target"] = plan->target();
    record["seconds"] = seconds.count();
    record["notes"] = origin.notes;
    return record;
  }

 private:
  std::shared_ptr<const Plan> plan_of(const convnorm_problem& problem) {
    const auto [at, fresh] = plans_.try_emplace(print_line(problem));
    if (fresh) at->second = std::make_shared<const Plan>(problem, options_);
    return at->second;
  }

  static Tensor execute(const std::shared_ptr<const Plan>& plan, const Operands& operands) {
    Computed computed = compute(planned_subject(plan), operands);
    if (!computed.fault.empty()) throw BadInput(fmt::format("path {} {}", plan->path(), computed.fault));
    return {element_type(operands.problem.dtype), output_shape(operands.problem), std::move(computed.y)};
  }

  const RunFlags& flags_;
  convnorm_plan_options options_;
  TensorMap given_;
  std::map<std::string, std::shared_ptr<const Plan>> plans_;
};

void print_run(const Json& record, bool json) {
  if (json) return print_record(record, true);
  for (const Json& note : record["notes"]) print_note(note.get<std::string>());
  // stdout may be where y goes.
  fmt::print(stderr, "{}: {} {} by {} ({})\n", record["output"].get<std::string>(),
             shape_text(record["shape"].get<std::vector<int64_t>>()), record["dtype"].get<std::string>(),
             record["path"].get<std::string>(), record["target"].get<std::string>());
}

// Two names of one existing file, or one name twice.
bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return !a.empty() && !b.empty() && (a == b || fs::equivalent(a, b, ignored));
}

void refuse_to_overwrite(const RunFlags& flags) {
  const std::pair<const char*, fs::path> others[] = {
      {"--input", flags.input}, {"--tensors", flags.tensors}, {"--save-tensors", flags.save_tensors}};
  for (const auto& [flag, path] : others) {
    if (fs::exists(flags.output) && !fs::is_regular_file(flags.output) && !fs::is_directory(flags.output)) continue;
    if (!same_file(flags.output, path)) continue;
    throw BadInput(fmt::format("--output {} is {} too and would overwrite it; give y a name of its own",
                               printable(flags.output), flag));
  }
}

ExitStatus run(const RunFlags& flags) {
  refuse_to_overwrite(flags);
  flags.plan.note_unused();
  Runner runner(flags);
  if (flags.input.empty() || !fs::is_directory(flags.input)) {
    print_run(runner.run(flags.input, flags.output), flags.json);
    return kMet;
  }
  if (!flags.save_tensors.empty()) {
    throw BadInput("--save-tensors holds the tensors of one run; give one file as --input, not a directory");
  }
  ExitStatus status = kMet;
  const std::vector<FilePair> pairs = pair_files(flags.input, flags.output);
  Progress progress("run", pairs.size());
  for (const auto& [input, output] : pairs) {
    Json record;
    const std::string failure = failure_of([&] { record = runner.run(input, output); });
    progress.clear();
    if (failure.empty()) {
      print_run(record, flags.json);
    } else {
      status = kBadInput;
      print_error(fmt::format("{}: {}", printable(input.string()), failure));
      if (flags.json) print_record({{"input", input.string()}, {"error", failure}}, true);
    }
    progress.finish_step();
  }
  return status;
}

}  // namespace

void add_run(CLI::App& app, ExitStatus& status) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App& verb = *app.add_subcommand("run", "Compute y and write it to a file");
  verb.add_option("LINE", flags->line, "problem line; n, c and l may be `auto` and then follow x")->required();
  verb.add_option("--input", flags->input, "x: an .npy, .wav or .flac file, or a directory of them");
  add_tensors_flag(verb, flags->tensors);
  add_seed_flag(verb, flags->seed);
  verb.add_option("--output", flags->output, "the .npy file of y; a directory when --input is one")->required();
  verb.add_option("--save-tensors", flags->save_tensors, "write every tensor that was used to this safetensors file");
  flags->plan.add_to(verb);
  add_json_flag(verb, flags->json);
  add_examples(verb, {"convnorm run n=1,c=8,l=100,o=16,k=3,p=1,g=4,post=silu --output y.npy",
                      "convnorm run n=1,c=auto,l=auto,o=8,k=7,p=3,g=4 --input song.wav --output y.npy",
                      "convnorm run n=auto,c=8,l=auto,o=16,k=3,p=1,g=4 --input clips/ --output results/",
                      "convnorm run n=1,c=8,l=100,o=16,k=3,g=4 --tensors layer.safetensors --output y.npy"});
  verb.callback([flags, &status] { status = run(*flags); });
}

}  // namespace convnorm::cli
