// Error statistics: how far one result is from another, and whether that is near enough.
#pragma once

#include <cstdint>
#include <span>

#include "convnorm/convnorm.h"

namespace convnorm::cli {

// |err| <= absolute + relative * |y|.
struct Tolerance {
  double absolute;
  double relative;
  double smallest_spread;  // of y: below it, rounding alone may be as large as the spread
};

// The contract of each type: what rounding y to it costs, with a margin for sums in another order.
Tolerance tolerance_of(convnorm_dtype dtype);

// Statistics of any number of stretches of y, taken one after the other.
class Comparison {
 public:
  Comparison(Tolerance tolerance, bool allow_nan) : tolerance_(tolerance), allow_nan_(allow_nan) {}

  // `offset` is what the index of the worst element counts from.
  void add(std::span<const float> got, std::span<const float> want, int64_t offset);

  // Every element is within the tolerance, and the errors together are small beside the spread of what is wanted: where
  // all of y is smaller than the tolerance, zeros would pass the first half.
  bool pass() const;

  double max_abs_err() const { return max_abs_err_; }  // infinite after a mismatch of NaN or Inf
  double worst_ratio() const { return worst_ratio_; }  // of |err| to its tolerance
  int64_t worst_index() const { return worst_index_; }
  int64_t count() const { return count_; }
  int64_t nonfinite_mismatches() const { return nonfinite_mismatches_; }

 private:
  double error(float got, float want);

  Tolerance tolerance_;
  bool allow_nan_;
  double max_abs_err_ = 0;
  double worst_ratio_ = 0;
  int64_t worst_index_ = 0;
  int64_t count_ = 0;
  int64_t finite_count_ = 0;
  int64_t nonfinite_mismatches_ = 0;
  double error_squares_ = 0;
  double mean_ = 0;  // of the finite wanted elements
  double centred_squares_ = 0;
};

}  // namespace convnorm::cli
