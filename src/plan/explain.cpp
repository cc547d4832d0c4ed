#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "plan/plan.hpp"

namespace convnorm {

namespace {

using Json = nlohmann::ordered_json;

// One line of the explanation, as a person and as a program reads it: a name without text is for programs alone, and a
// unit that the text scales is no part of the name there.
struct Row {
  std::string name;
  Json value;
  std::string text;

  std::string label() const { return name.ends_with("_us") ? name.substr(0, name.size() - 3) : name; }
};

// 1234567 bytes -> "1.23 MB".
std::string with_unit(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; value >= 1000 && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  return fmt::format("{:.3g} {}{}", value, kPrefixes[prefix], unit);
}

std::string duration(double us) {
  if (us < 1e3) return fmt::format("{:.4g} us", us);
  return us < 1e6 ? fmt::format("{:.4g} ms", us * 1e-3) : fmt::format("{:.4g} s", us * 1e-6);
}

// `rate` names what `gflops` is of.
std::vector<Row> floor_rows(double flops, double gflops, const std::string& rate, double bytes, double bandwidth_gbps) {
  const double math_us = flops / (gflops * 1e3), memory_us = bytes / (bandwidth_gbps * 1e3);
  const double floor_us = std::max(math_us, memory_us);
  return {
      {"floor_us", floor_us,
       fmt::format("{}: the larger of math {} ({}{}) and memory {} ({})", duration(floor_us), duration(math_us), rate,
                   with_unit(gflops * 1e9, "FLOP/s"), duration(memory_us), with_unit(bandwidth_gbps * 1e9, "B/s"))},
      {"floor_math_us", math_us, ""},
      {"floor_memory_us", memory_us, ""}};
}

std::vector<Row> floor_rows(const Accounting& cost, const Sizes& sizes, const convnorm_machine& machine) {
  return floor_rows(sizes.flops, machine.fma_gflops, "", cost.min_bytes, machine.bandwidth_gbps);
}

// From the rates of the vendor's tables, which no kernel quite reaches. None where they are not known.
std::vector<Row> floor_rows(const Accounting& cost, const Sizes& sizes, const cuda::DeviceLimits& gpu) {
  const int products = std::max(1, cost.split_parts * (cost.split_parts + 1) / 2);
  const double gflops = gpu.peak_gflops(cost.tensor_cores);
  if (gflops == 0 || gpu.bandwidth_gbps == 0) return {};
  return floor_rows(sizes.flops * products, gflops, fmt::format("{} product{} of ", products, products == 1 ? "" : "s"),
                    cost.min_bytes, gpu.bandwidth_gbps);
}

// What each of some other paths said: [{"path": ..., `key`: ...}], and in words.
template <class Said, class InWords>
Row paths_row(const convnorm_plan& plan, const char* name, const char* key, const Said& said, const InWords& in_words) {
  Json list = Json::array();
  std::string text;
  for (const auto& [path, what] : said) {
    list.push_back({{"path", path}, {key, what}});
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", path, in_words(what));
  }
  const char* none = plan.path_was_named ? "not asked: the path was named" : "none";
  return {name, list, text.empty() ? none : text};
}

// What the planner compares. On CPUs it goes by the order of the paths and knows no times.
void add_expected_times(const convnorm_plan& plan, std::vector<Row>& result) {
  const double expected_us = plan.executable->expected_us();
  if (expected_us == 0) return;
  result.push_back({"expected_us", expected_us, duration(expected_us) + ", as the planner reckons"});
  result.push_back(paths_row(plan, "alternatives", "expected_us", plan.alternatives, duration));
}

std::vector<Row> rows(const convnorm_plan& plan, const convnorm_machine* machine) {
  const Problem& problem = plan.problem;
  const Implementation& implementation = *plan.implementation;
  const Sizes sizes(problem);
  const Accounting cost = plan.executable->accounting();

  std::vector<Row> result;
  const std::string line = print_problem(problem);
  result.push_back({"problem", line, line});
  result.push_back({"path", implementation.name, implementation.name});
  result.push_back({"summary", implementation.summary, implementation.summary});
  result.push_back({"target", plan.target, plan.target});
  if (plan.gpu) {
    const std::string device = fmt::format("{} ({} SMs)", plan.gpu->name, plan.gpu->sm_count);
    result.push_back({"device", device, device});
  } else {
    result.push_back({"threads", plan.threads, std::to_string(plan.threads)});
  }

  Json config = Json::object();
  std::string config_text;
  for (const auto& [name, value] : plan.executable->config()) {
    config[name] = value;
    config_text += fmt::format("{}{}={}", config_text.empty() ? "" : ", ", name, value);
  }
  result.push_back({"config", config, config_text.empty() ? "none" : config_text});

  result.push_back({"flops", cost.flops, with_unit(cost.flops, "FLOP")});
  result.push_back({"min_bytes", cost.min_bytes, with_unit(cost.min_bytes, "B, each tensor read or written once")});
  result.push_back({"moved_bytes", cost.moved_bytes, with_unit(cost.moved_bytes, "B, expected beyond the caches")});
  result.push_back(
      {"z_bytes", cost.z_bytes, with_unit(cost.z_bytes, "B of convolution results held outside the caches")});
  result.push_back({"workspace_bytes", cost.workspace_bytes, with_unit(cost.workspace_bytes, "B")});
  result.push_back({"split_parts", cost.split_parts,
                    cost.split_parts == 0 ? "none: operands are multiplied as they are"
                                          : fmt::format("{} of bfloat16 for each fp32 operand", cost.split_parts)});
  result.push_back({"packed_bytes", plan.executable->packed_bytes(),
                    with_unit(static_cast<double>(plan.executable->packed_bytes()), "B")});
  std::vector<Row> floor;
  if (plan.gpu) {
    floor = floor_rows(cost, sizes, *plan.gpu);
  } else if (machine != nullptr) {
    floor = floor_rows(cost, sizes, *machine);
  }
  result.insert(result.end(), floor.begin(), floor.end());
  add_expected_times(plan, result);
  result.push_back(paths_row(plan, "refusals", "reason", plan.refusals, std::identity{}));

  const std::vector<std::string> guarantees = {
      implementation.determinism,
      implementation.vectorised ? "accumulation and statistics in fp32 or wider: mean first, then centred squares"
                                : "accumulation and statistics in fp64: mean first, then centred squares",
      "NaN and infinities propagate as the formula says",
      "executing allocates nothing and writes nothing but y and the workspace",
  };
  result.push_back({"guarantees", guarantees, fmt::format("{}", fmt::join(guarantees, "\n"))});
  return result;
}

}  // namespace

std::string explain(const convnorm_plan& plan, const convnorm_machine* machine, convnorm_format format) {
  const std::vector<Row> explanation = rows(plan, machine);
  if (format == CONVNORM_JSON) {
    Json document = Json::object();
    for (const Row& row : explanation) document[row.name] = row.value;
    return document.dump(2);
  }
  constexpr size_t kNameWidth = 17;
  std::string text;
  for (const Row& row : explanation) {
    if (row.text.empty()) continue;
    text += fmt::format("{:{}}", row.label(), kNameWidth);
    for (const char c : row.text) {
      text += c;
      if (c == '\n') text.append(kNameWidth, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace convnorm
