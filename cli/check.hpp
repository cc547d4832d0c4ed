// One run of an operator, compared with the reference, under conditions in which it cannot pass by accident.
#pragma once

#include <string>
#include <vector>

#include "cli/compare.hpp"
#include "cli/reference.hpp"
#include "cli/subject.hpp"
#include "cli/tensors.hpp"

namespace convnorm::cli {

// Beyond this the reference alone would take minutes, and pieces of the problem are compared instead.
inline constexpr double kReferenceFlops = 4e10;

inline constexpr char kComparedNothing[] = "nothing";

struct CheckOptions {
  double reference_flops = kReferenceFlops;  // 0: the reference is not asked, only faults are looked for
  bool allow_nan = false;                    // NaN in both at the same place is right
  int32_t threads = 0;
};

struct CheckResult {
  Comparison comparison;
  Position worst;
  std::string compared;  // "all", which pieces, or kComparedNothing
  std::string fault;     // what else went wrong: inputs changed, guards overwritten; empty if nothing
  Tensor y;

  bool pass() const { return fault.empty() && comparison.pass(); }
};

// What the reference says, kept so that several subjects are held against one computation of it.
class Expectation {
 public:
  Expectation(const Operands& operands, const CheckOptions& options);

  CheckResult check(const Subject& subject) const;

 private:
  const Operands& operands_;
  CheckOptions options_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<float>> wanted_;
};

}  // namespace convnorm::cli
