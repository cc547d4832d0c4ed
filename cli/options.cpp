#include "cli/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "cli/library.hpp"
#include "cli/verbs.hpp"

namespace convnorm::cli {

void PlanFlags::add_to(CLI::App& verb) {
  add_device_flag(verb, device, "a GPU that this build has code for, else the CPU");
  add_threads_flag(verb, threads);
  verb.add_option("--path", path, "compute by this path or fail; `explain` lists them");
  verb.add_option("--target", target, "use this instruction set or fail; `info` lists them");
  verb.add_flag("--constant-weights", constant_weights,
                "on a GPU, fetch the weight of a call while the kernel before it still runs");
}

convnorm_device PlanFlags::chosen_device() const {
  if (device != "auto") return device == "cuda" ? CONVNORM_CUDA : CONVNORM_CPU;
  // What was asked for besides may leave no choice.
  if (threads > 0 || on_cpu_alone) return CONVNORM_CPU;
  if (!target.empty()) return target.starts_with("sm_") ? CONVNORM_CUDA : CONVNORM_CPU;
  const bool by_cpu = std::ranges::count(path_names(CONVNORM_CPU), path) > 0;
  const bool by_gpu = std::ranges::count(path_names(CONVNORM_CUDA), path) > 0;
  if (by_cpu != by_gpu) return by_gpu ? CONVNORM_CUDA : CONVNORM_CPU;
  return gpu_is_usable() ? CONVNORM_CUDA : CONVNORM_CPU;
}

void PlanFlags::note_unused() const {
  const bool on_gpu = chosen_device() == CONVNORM_CUDA;
  if (on_gpu && threads > 0)
    print_note("--threads limits what CPUs do, such as the reference; the GPU does not use it");
  if (!on_gpu && constant_weights) print_note("--constant-weights is a promise to GPUs; the CPU does not use it");
}

convnorm_plan_options PlanFlags::options() const {
  convnorm_plan_options options;
  convnorm_plan_options_init(&options);
  options.device = chosen_device();
  options.threads = threads;
  options.path = path.empty() ? nullptr : path.c_str();
  options.target = target.empty() ? nullptr : target.c_str();
  options.constant_weights = constant_weights;
  return options;
}

void ProblemFlags::add_to(CLI::App& verb) {
  verb.add_option("LINE", source, "problem line, or @file with one `name line` or `line` per row")->required();
  verb.add_option("--only", only, "of a file, only the problems of these names")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_tensors_flag(verb, tensors);
  add_seed_flag(verb, seed);
}

void add_device_flag(CLI::App& verb, std::string& device, const std::string& meaning_of_auto) {
  const auto is_device = [](const std::string& text) -> std::string {
    if (text == "cpu" || text == "cuda" || text == "auto") return "";
    if (text.starts_with("cuda:")) {
      return fmt::format(
          "{}: of several GPUs, CUDA_VISIBLE_DEVICES={} in the environment chooses one, for --device cuda", text,
          text.substr(5));
    }
    return fmt::format("{} is none of cpu, cuda and auto", text);
  };
  verb.add_option("--device", device, "cpu, cuda, or auto: " + meaning_of_auto)
      ->check(CLI::Validator(is_device, "{cpu,cuda,auto}"))
      ->capture_default_str();
}

void add_threads_flag(CLI::App& verb, int32_t& threads) {
  verb.add_option("--threads", threads, "most threads of one call; 0 takes all of them")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void add_json_flag(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "print JSON objects, one per line, instead of text");
}

void add_seed_flag(CLI::App& verb, uint64_t& seed) {
  // The parser alone would take -1 and what is too large for the largest number.
  const auto is_seed = [](const std::string& text) -> std::string {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return "";
    return fmt::format("{} is not a whole number from 0 to 18446744073709551615", text);
  };
  verb.add_option("--seed", seed, "of the generator that draws the tensors that are not given")
      ->check(CLI::Validator(is_seed, ""))
      ->capture_default_str();
}

void add_tensors_flag(CLI::App& verb, std::string& path) {
  verb.add_option("--tensors", path, "safetensors file with any of the tensors that the line asks for");
}

void add_examples(CLI::App& verb, const std::vector<std::string>& lines) {
  verb.footer(fmt::format("Examples:\n  {}", fmt::join(lines, "\n  ")));
}

}  // namespace convnorm::cli
