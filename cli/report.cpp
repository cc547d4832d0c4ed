#include "cli/report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "cli/library.hpp"

namespace convnorm::cli {
namespace {

std::string text_of_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (value.is_null()) return "not finite";
  return value.dump();
}

}  // namespace

Json significant(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return value;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

Json problem_record(const std::string& name, const convnorm_problem& problem) {
  Json record;
  if (!name.empty()) record["name"] = name;
  record["problem"] = print_line(problem);
  return record;
}

void add_check(Json& record, const Subject& subject, const CheckResult& result) {
  record["path"] = subject.path;
  record["target"] = subject.target;
  record["compared"] = result.compared;
  if (!result.fault.empty()) record["fault"] = result.fault;
  if (result.compared == kComparedNothing) return;
  const Comparison& comparison = result.comparison;
  record["max_abs_err"] = significant(comparison.max_abs_err());
  record["worst_ratio"] = significant(comparison.worst_ratio());
  record["worst_at"] = {result.worst.n, result.worst.c, result.worst.l};
  if (comparison.nonfinite_mismatches() > 0) record["nonfinite_mismatches"] = comparison.nonfinite_mismatches();
  record["pass"] = result.pass();
}

void add_timing(Json& record, const Timing& timing, const Cost& cost, std::optional<double> floor_seconds) {
  const auto microseconds = [](double seconds) { return significant(seconds * 1e6); };
  record["median_us"] = microseconds(timing.median);
  record["spread_us"] = microseconds(timing.spread);
  record["gflops"] = significant(cost.flops / timing.median * 1e-9);
  record["gbps"] = significant(cost.bytes / timing.median * 1e-9);
  if (floor_seconds) {
    record["floor_us"] = microseconds(*floor_seconds);
    record["floor_share"] = significant(*floor_seconds / timing.median);
  }
  record["pack_us"] = microseconds(timing.pack);
  record["calls"] = timing.calls;
  record["buffer_sets"] = timing.buffer_sets;
  record["cold"] = timing.cold;
}

std::string text_of(const Json& record) {
  std::string text;
  for (const auto& [key, value] : record.items()) {
    if (!text.empty()) text += "  ";
    if (key == "pass") {
      text += value.get<bool>() ? "PASS" : "FAIL";
    } else if (key == "name" || key == "problem") {
      text += text_of_value(value);
    } else {
      text += fmt::format("{} {}", key, text_of_value(value));
    }
  }
  return text;
}

std::string dump(const Json& record) { return record.dump(-1, ' ', false, Json::error_handler_t::replace); }

void print_record(const Json& record, bool json) {
  fmt::print("{}\n", json ? dump(record) : text_of(record));
  std::fflush(stdout);
}

}  // namespace convnorm::cli
