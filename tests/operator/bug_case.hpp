// What the reported cases share: their numbers, and how closely every path must meet them.
//
// Where each case of the operator is held, by file of this folder:
//   numerics  B001s B003 B005 B007 B009 B010 B012 B013 B014 B017 B019 B020 B021 B022 B087
//   shapes    B024 B026 B027 B028 B029 B030 B031 B032 B035 B036 B037 B038 B039 B042
//   layout    B045 B047 B048 B050 B051 B052 B053 B055 B057 B058 B061 B062s B064s B083 B108
//   big       B001 B002 B041 B043 B066s
//   layers    B074 (concurrency)
// "s": smaller than reported. B062 and B064 are about more than 2^31 elements of 16 bits, 5 GB each; here their
// patterns run at a size of megabytes. B066 keeps a batch beyond 65535 but not 131072 samples. B047, B048, B050, B052,
// B055: tensors are dense here, so that a view becomes a dense copy at an odd address, and the backward halves do not
// apply. B093 (inputs untouched) and B104 (the path is asserted) are held by the runner in every test. B075 to B083 are
// about gradients; B067 to B073 about devices; B085 to B091 about compilers and exporters, B092 to B129 about
// benchmarks, packaging, files and several devices.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "support/fills.hpp"
#include "support/runner.hpp"

namespace convnorm::test {

inline constexpr const char* kS1 = "n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1";

struct Numbers {
  std::optional<double> first = {}, last = {}, sum = {}, squares = {};
};

// Times max(1, |y|).
inline double tolerance_of(convnorm_dtype dtype) {
  return dtype == CONVNORM_F32 ? 2e-5 : dtype == CONVNORM_F16 ? 2e-3 : 1.6e-2;
}

inline std::string near(const std::vector<double>& y, const std::vector<double>& want, double tolerance) {
  if (y.size() != want.size()) return fmt::format("{} elements instead of {}", y.size(), want.size());
  for (size_t i = 0; i < y.size(); ++i) {
    if (std::fabs(y[i] - want[i]) <= tolerance * std::max(1.0, std::fabs(want[i]))) continue;
    if (std::isnan(y[i]) && std::isnan(want[i])) continue;
    return fmt::format("element {} is {:.9g} instead of {:.9g}", i, y[i], want[i]);
  }
  return "";
}

inline std::string meets(const std::vector<double>& y, const Numbers& numbers, double tolerance) {
  double sum = 0, squares = 0;
  for (const double value : y) sum += value, squares += value * value;
  const auto check = [&](const char* what, std::optional<double> want, double got) {
    if (!want || std::fabs(got - *want) <= tolerance * std::max(1.0, std::fabs(*want))) return std::string();
    return fmt::format("{} is {:.9g} instead of {:.9g}", what, got, *want);
  };
  for (const std::string& fault :
       {check("the first", numbers.first, y.front()), check("the last", numbers.last, y.back()),
        check("the sum", numbers.sum, sum), check("the sum of squares", numbers.squares, squares)}) {
    if (!fault.empty()) return fault;
  }
  return "";
}

// Every path on every target gives `want`.
inline void expect_everywhere(const Inputs& in, const std::vector<double>& want, double tolerance) {
  // A report's limit is one for fp32; what products of parts may add to it follows from the inputs.
  const Expected plain(in);
  const auto added = [&](Arithmetic arithmetic) {
    return 2 * std::max(0.0, plain.error_in(arithmetic, in) - plain.error);
  };
  EXPECT_EQ(on_every_path(in, [&](const Outcome& o) { return near(o.y, want, tolerance + added(o.arithmetic)); }), "")
      << print_problem(in.problem);
}
inline void expect_everywhere(const Inputs& in, const std::vector<double>& want) {
  expect_everywhere(in, want, tolerance_of(in.problem.dtype));
}

// The truth has the reported numbers, and every path has the truth: by the rule of all tests and by the report's limit.
inline void expect_numbers(const Inputs& in, const Numbers& numbers) {
  const Expected expected(in);
  EXPECT_EQ(meets(expected.y, numbers, 2e-6), "") << print_problem(in.problem);
  EXPECT_EQ(check_every_path(in), "") << print_problem(in.problem);
  expect_everywhere(in, expected.y);
}

// Depthwise, K=1, weight 1, no bias: only the norm acts.
inline Inputs identity_case(const std::string& line) {
  Inputs in = make_inputs(line);
  in.w.assign(in.w.size(), 1.0f);
  return in;
}

}  // namespace convnorm::test
