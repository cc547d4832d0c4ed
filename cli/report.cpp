#include "cli/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "cli/library.hpp"
#include "cli/units.hpp"

namespace convnorm::cli {
namespace {

std::string text_of_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (value.is_null()) return "not finite";
  if (value.is_array()) {
    std::string list;
    for (const Json& each : value) list += (list.empty() ? "" : ", ") + text_of_value(each);
    return list;
  }
  return value.dump();
}

std::string verdict(const Json& pass) { return pass.get<bool>() ? "PASS" : "FAIL"; }

// "median_us", 21.31 -> "median 21.31 us".
std::string cell_of(const std::string& key, const Json& value) {
  const auto stem = [&](std::string_view unit) {
    std::string name = key.substr(0, key.size() - unit.size());
    if (name.ends_with('_')) name.back() = ' ';
    return name;
  };
  if (key == "cold") return value.get<bool>() ? "cold" : "not cold";
  if (value.is_boolean()) return fmt::format("{} {}", key, value.get<bool>() ? "yes" : "no");
  if (!value.is_number()) return fmt::format("{} {}", key, text_of_value(value));
  const double number = value.get<double>();
  if (key.ends_with("_us")) return stem("us") + duration(number);
  if (key.ends_with("gflops")) return stem("gflops") + with_unit(number * 1e9, "FLOP/s");
  if (key.ends_with("gbps")) return stem("gbps") + with_unit(number * 1e9, "B/s");
  if (key.ends_with("_mhz")) return stem("mhz") + fmt::format("{} MHz", number);
  return fmt::format("{} {}", key, text_of_value(value));
}

std::string share_of(const Json& share) {
  return share.is_number() ? fmt::format(" ({:.3g}%)", 100 * share.get<double>()) : "";
}

// Lays a record out for a person. The same fields stand below one another from problem to problem.
class Columns {
 public:
  explicit Columns(const Json& record) {
    for (const char* key : kTitle) {
      if (record.contains(key)) text_ += (text_.empty() ? "" : "  ") + text_of_value(record[key]);
    }
    add(record);
  }

  std::string text() const { return text_; }

 private:
  static constexpr size_t kVerdictWidth = 6, kWidth = 24, kGap = 2;
  static constexpr const char* kTitle[] = {"name", "problem", "chain"};
  static constexpr const char* kResultCells[] = {"max_abs_err", "kappa", "nonfinite_mismatches", "compared"};

  void add(const Json& record) {
    if (record.contains("path")) add_result(record);
    bool fresh = true;
    for (const auto& [key, value] : record.items()) {
      if (stands_above(key) || key == "floor_share") continue;
      if (key == "unfused") {
        text_ += "\n  unfused, as two steps:";
        add(value);
        fresh = true;
        continue;
      }
      if (fresh || key == "median_us" || key == "pack_us" || key == "fault") begin_line("");
      fresh = false;
      std::string cell = cell_of(key, value);
      if (key == "floor_us" && record.contains("floor_share")) cell += share_of(record["floor_share"]);
      add_cell(cell);
    }
  }

  void add_result(const Json& record) {
    begin_line(record.contains("pass") ? verdict(record["pass"]) : "");
    add_cell(fmt::format("{} ({})", text_of_value(record["path"]), text_of_value(record["target"])));
    if (record.contains("worst_ratio")) {
      add_cell(fmt::format("worst_ratio {} at ({})", text_of_value(record["worst_ratio"]),
                           text_of_value(record["worst_at"])));
    }
    for (const char* key : kResultCells) {
      if (record.contains(key)) add_cell(cell_of(key, record[key]));
    }
  }

  static bool stands_above(std::string_view key) {
    const auto among = [key](const auto& keys) { return std::ranges::find(keys, key) != std::end(keys); };
    constexpr std::string_view kResult[] = {"path", "target", "pass", "worst_ratio", "worst_at"};
    return among(kTitle) || among(kResult) || among(kResultCells);
  }

  void begin_line(const std::string& verdict) {
    text_ += fmt::format("\n  {:{}}", verdict, kVerdictWidth);
    pending_ = 0;
  }

  // Takes as many columns as it needs. Blanks go before the next cell, so that no line ends in them.
  void add_cell(const std::string& cell) {
    text_.append(pending_, ' ');
    text_ += cell;
    pending_ = (cell.size() + kGap + kWidth - 1) / kWidth * kWidth - cell.size();
  }

  std::string text_;
  size_t pending_ = 0;
};

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
  if (record.contains("problem") || record.contains("chain")) return Columns(record).text();
  std::string text;
  for (const auto& [key, value] : record.items()) {
    if (!text.empty()) text += "  ";
    text += key == "pass" ? verdict(value) : fmt::format("{} {}", key, text_of_value(value));
  }
  return text;
}

std::string dump(const Json& record) { return record.dump(-1, ' ', false, Json::error_handler_t::replace); }

void print_record(const Json& record, bool json) {
  fmt::print("{}\n", json ? dump(record) : text_of(record));
  std::fflush(stdout);
}

}  // namespace convnorm::cli
