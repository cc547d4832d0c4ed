// convnorm bench: checks an operator, then times it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/check.hpp"
#include "cli/files/safetensors.hpp"
#include "cli/library.hpp"
#include "cli/memory.hpp"
#include "cli/options.hpp"
#include "cli/problem_list.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"
#include "cli/timing.hpp"
#include "cli/verbs.hpp"

namespace convnorm::cli {
namespace {

// The second content needs no more than a spot check: the first one is compared in full.
constexpr double kSpotCheckFlops = 2e9;

struct BenchFlags {
  ProblemFlags problem;
  PlanFlags plan;
  double min_time = 0.5;
  bool hot = false;
  bool unfused = false;
  bool chain = false;
  bool no_check = false;
  bool json = false;
};

class Bench {
 public:
  Bench(const BenchFlags& flags, Progress& progress) : flags_(flags), progress_(progress) {
    if (!flags.problem.tensors.empty()) given_ = read_safetensors(flags.problem.tensors).tensors;
    on_gpu_ = flags.plan.chosen_device() == CONVNORM_CUDA;
    if (flags.chain && flags.unfused) throw BadInput("--chain is of GPUs and --unfused of CPUs; leave one out");
    if (on_gpu_ && flags.unfused) throw BadInput("--unfused times CPU paths; use --device cpu, or leave it out");
    if (!on_gpu_ && flags.chain)
      throw BadInput("--chain replays a graph of kernels; use --device cuda, or leave it out");
    if (flags.chain && flags.hot) throw BadInput("--chain gives each block a weight of its own; leave --hot out");
    flags.plan.note_unused();
    if (!on_gpu_) machine_ = measure_machine(flags.plan.options());
  }

  ExitStatus run(const NamedProblem& named) {
    if (named.problem.n == 0) throw BadInput("n=0 leaves nothing to time; give n of at least 1");
    const convnorm_plan_options options = flags_.plan.options();
    const auto plan = std::make_shared<const Plan>(named.problem, options);
    require_memory(memory_need(*plan, 2));
    const Subject subject = planned_subject(plan);
    const std::vector<Operands> operands = draw_operands(named.problem);
    Json record = problem_record(named.name, named.problem);
    Timing timing;
    ExitStatus status = measure(subject, plan, operands, record, &timing);
    if (flags_.unfused && status == kMet) {
      Json steps;
      Timing unfused;
      status = measure(unfused_subject(named.problem, options), nullptr, operands, steps, &unfused);
      record["unfused"] = steps;
      if (status == kMet) record["unfused_ratio"] = significant(unfused.median / timing.median);
    }
    if (status == kNotMet) record["pass"] = false;
    progress_.clear();
    print_record(record, flags_.json);
    return status;
  }

  // All problems as blocks of one chain.
  ExitStatus run_chain(const std::vector<NamedProblem>& problems) {
    std::vector<Operands> operands;
    std::vector<ChainBlock> blocks;
    operands.reserve(problems.size());
    convnorm_plan_options options = flags_.plan.options();
    Cost cost{};
    double on_device = 0;  // bytes
    int linked = 0;
    for (const NamedProblem& named : problems) {
      if (named.problem.n == 0) throw BadInput("n=0 leaves nothing to time; give n of at least 1");
      const auto plan = std::make_shared<const Plan>(named.problem, options);
      // On the GPU all blocks lie beside one another; on the host those before this one are there already.
      const MemoryNeed of_block = memory_need(*plan);
      on_device += of_block.device;
      require_memory({of_block.host, on_device});
      operands.push_back(draw(named.problem));
      if (!flags_.no_check) {
        const CheckOptions check{.threads = flags_.plan.threads};
        const Subject subject = planned_subject(plan);
        const CheckResult result = Expectation(operands.back(), check).check(subject);
        if (!result.pass()) {
          Json record = problem_record(named.name, named.problem);
          add_check(record, subject, result);
          print_record(record, flags_.json);
          return kNotMet;
        }
      }
      if (!blocks.empty() && follows(blocks.back().plan->problem(), named.problem)) ++linked;
      convnorm_plan_options careful = options;
      careful.constant_weights = 0;
      blocks.push_back({plan, std::make_shared<const Plan>(named.problem, careful), &operands.back()});
      const Cost block_cost = cost_of(operands.back());
      cost.flops += block_cost.flops, cost.bytes += block_cost.bytes;
    }
    const Timing timing = time_chain_on_device(blocks, timing_options());
    Json record;
    record["chain"] = flags_.problem.source;
    record["blocks"] = blocks.size();
    record["linked"] = linked;
    record["constant_weights"] = flags_.plan.constant_weights;
    record["per_block_us"] = significant(timing.median * 1e6 / static_cast<double>(blocks.size()));
    add_timing(record, timing, cost, std::nullopt);
    if (timing.clock_mhz) record["clock_mhz"] = *timing.clock_mhz;
    if (!timing.fault.empty()) record["fault"] = timing.fault;
    progress_.clear();
    print_record(record, flags_.json);
    return timing.fault.empty() ? kMet : kNotMet;
  }

 private:
  TimingOptions timing_options() {
    TimingOptions options{.min_seconds = flags_.min_time, .hot = flags_.hot, .seed = flags_.problem.seed};
    options.progress = [this](double share) { progress_.update(share); };
    return options;
  }

  Operands draw(const convnorm_problem& problem) const {
    Origin origin;
    Operands drawn = complete(problem, given_, flags_.problem.seed, &origin);
    for (const std::string& note : origin.notes) print_note(note);
    return drawn;
  }

  // Two sets of tensors that differ in x alone.
  std::vector<Operands> draw_operands(const convnorm_problem& problem) const {
    Operands first = draw(problem);
    TensorMap others = first.tensors;
    others.erase("x");
    Origin origin;
    Operands second = complete(problem, std::move(others), flags_.problem.seed + 1, &origin);
    std::vector<Operands> both;
    both.push_back(std::move(first));
    both.push_back(std::move(second));
    return both;
  }

  // `plan` is what `subject` executes on a GPU.
  ExitStatus measure(const Subject& subject, const std::shared_ptr<const Plan>& plan,
                     const std::vector<Operands>& operands, Json& record, Timing* timing) {
    std::vector<Content> contents;
    for (const Operands& each : operands) {
      const bool first = contents.empty();
      CheckOptions options{.threads = flags_.plan.threads};
      options.reference_flops = flags_.no_check ? 0 : first ? kReferenceFlops : kSpotCheckFlops;
      CheckResult result = Expectation(each, options).check(subject);
      if (first || !result.pass()) add_check(record, subject, result);
      if (!result.pass()) return kNotMet;
      contents.push_back({&each, std::move(result.y)});
    }
    TimingOptions options = timing_options();
    if (!on_gpu_) {
      *timing = time_subject(subject, contents, options);
      return judge(operands.front(), *timing, record);
    }
    *timing = time_on_device(plan, contents, options);
    const ExitStatus status = judge_on_gpu(*plan, operands.front(), *timing, record);
    if (status == kNotMet || flags_.hot) return status;
    options.hot = true;
    const Timing hot = time_on_device(plan, contents, options);
    record["hot_median_us"] = significant(hot.median * 1e6);
    if (!hot.fault.empty()) record["fault"] = hot.fault;
    return hot.fault.empty() ? kMet : kNotMet;
  }

  ExitStatus judge(const Operands& operands, const Timing& timing, Json& record) {
    const Cost cost = cost_of(operands);
    double floor = floor_seconds(cost, machine_, timing.cold);
    if (is_below_floor(timing.median, floor)) {
      // The machine may have been busy when its peaks were measured, and they were too low then; never too high.
      const convnorm_machine again = measure_machine(flags_.plan.options());
      machine_.fma_gflops = std::max(machine_.fma_gflops, again.fma_gflops);
      machine_.bandwidth_gbps = std::max(machine_.bandwidth_gbps, again.bandwidth_gbps);
      floor = floor_seconds(cost, machine_, timing.cold);
    }
    add_timing(record, timing, cost, floor);
    add_fault(timing, floor, record);
    record["fma_gflops"] = machine_.fma_gflops;
    record["bandwidth_gbps"] = machine_.bandwidth_gbps;
    return record.contains("fault") ? kNotMet : kMet;
  }

  // A GPU's floor follows from the rates of the vendor's tables, which its plan knows.
  static ExitStatus judge_on_gpu(const Plan& plan, const Operands& operands, const Timing& timing, Json& record) {
    const Json explained = Json::parse(plan.explain(nullptr, CONVNORM_JSON));
    std::optional<double> floor;
    // Memory is no floor for buffers that stay in the caches.
    const char* of = timing.cold ? "floor_us" : "floor_math_us";
    if (explained.contains(of)) floor = explained[of].get<double>() * 1e-6;
    add_timing(record, timing, cost_of(operands), floor);
    if (timing.clock_mhz) record["clock_mhz"] = *timing.clock_mhz;
    add_fault(timing, floor.value_or(0), record);
    return record.contains("fault") ? kNotMet : kMet;
  }

  static void add_fault(const Timing& timing, double floor, Json& record) {
    if (!timing.fault.empty()) {
      record["fault"] = timing.fault;
    } else if (is_below_floor(timing.median, floor)) {
      record["fault"] = "the time is below its own floor by more than a tenth, so it is refused";
    }
  }

  const BenchFlags& flags_;
  Progress& progress_;
  TensorMap given_;
  bool on_gpu_ = false;
  convnorm_machine machine_{};
};

ExitStatus bench(const BenchFlags& flags) {
  const std::vector<NamedProblem> problems = read_problems(flags.problem.source, flags.problem.only);
  Progress progress("bench", flags.chain ? 1 : problems.size());
  Bench harness(flags, progress);
  if (flags.chain) return harness.run_chain(problems);
  return for_each_problem(problems, progress, flags.json,
                          [&](const NamedProblem& named) { return harness.run(named); });
}

}  // namespace

void add_bench(CLI::App& app, ExitStatus& status) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App& verb = *app.add_subcommand("bench", "Check, then time");
  flags->problem.add_to(verb);
  flags->plan.add_to(verb);
  verb.add_option("--min-time", flags->min_time, "seconds of timed work for each problem")
      ->check(CLI::Range(0.001, 3600.0))
      ->check([](const std::string& text) { return text.find("nan") == std::string::npos ? "" : "nan is no time"; })
      ->capture_default_str();
  verb.add_flag("--hot", flags->hot, "keep the buffers in the caches instead of rotating them");
  verb.add_flag("--unfused", flags->unfused,
                "on the CPU, time convolution and norm as two passes too, and print the ratio");
  verb.add_flag("--chain", flags->chain,
                "on a GPU, time all problems as the blocks of one network: each once, in order, in one graph");
  verb.add_flag("--no-check", flags->no_check, "time without comparing with the reference; the output says so");
  add_json_flag(verb, flags->json);
  add_examples(verb, {"convnorm bench n=1,c=512,l=16,o=512,k=5,p=2,g=8,bias=1,post=mish",
                      "convnorm bench @bench/shapes/layers.txt --only default --unfused",
                      "convnorm bench n=4,c=32,l=500,o=32,k=3,p=1,g=8 --hot --min-time 0.1 --json",
                      "convnorm bench @bench/shapes/policy_chain.txt --device cuda --chain --constant-weights"});
  verb.callback([flags, &status] {
    flags->plan.on_cpu_alone = flags->unfused;
    status = bench(*flags);
  });
}

}  // namespace convnorm::cli
