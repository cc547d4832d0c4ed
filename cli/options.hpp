// Flags that several verbs share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "convnorm/convnorm.h"

namespace convnorm::cli {

// Which implementation computes: --device, --threads, --path, --target.
struct PlanFlags {
  std::string device = "auto";
  std::string path;
  std::string target;
  int32_t threads = 0;
  bool constant_weights = false;
  bool on_cpu_alone = false;  // the verb was asked for what only CPUs do

  void add_to(CLI::App& verb);

  convnorm_device chosen_device() const;
  // A remark for each flag that the chosen device does not use.
  void note_unused() const;
  // Points into this object.
  convnorm_plan_options options() const;
};

// Which problems, with which inputs: LINE or @file, --only, --tensors, --seed.
struct ProblemFlags {
  std::string source;
  std::vector<std::string> only;
  std::string tensors;
  uint64_t seed = 0;

  void add_to(CLI::App& verb);
};

void add_device_flag(CLI::App& verb, std::string& device, const std::string& meaning_of_auto);
void add_threads_flag(CLI::App& verb, int32_t& threads);
void add_json_flag(CLI::App& verb, bool& json);
void add_seed_flag(CLI::App& verb, uint64_t& seed);
void add_tensors_flag(CLI::App& verb, std::string& path);

// `lines` are shown under "Examples:".
void add_examples(CLI::App& verb, const std::vector<std::string>& lines);

}  // namespace convnorm::cli
