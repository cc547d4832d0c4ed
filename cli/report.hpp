// What check, selftest and bench print: one record, as text or as a JSON object.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/check.hpp"
#include "cli/timing.hpp"

namespace convnorm::cli {

using Json = nlohmann::ordered_json;

// The fields that every verb on problems opens with: name (of a list), problem.
Json problem_record(const std::string& name, const convnorm_problem& problem);

// Six significant digits; what is not finite becomes null, because JSON knows no infinity.
Json significant(double value);

void add_check(Json& record, const Subject& subject, const CheckResult& result);

// Without a floor, none is printed.
void add_timing(Json& record, const Timing& timing, const Cost& cost, std::optional<double> floor_seconds);

// Of a problem: its line, then result and times in columns below it, in units that suit their size. Else one line,
// "key value ...".
std::string text_of(const Json& record);

void print_record(const Json& record, bool json);

// A file name in a record is whatever bytes it is; JSON holds only text.
std::string dump(const Json& record);

}  // namespace convnorm::cli
