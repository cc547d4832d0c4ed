#include "cli/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace convnorm::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A result that misses a tenth of the wanted spread does not compute the operator, whatever the tolerance says.
constexpr double kSpreadShare = 0.1;

}  // namespace

Tolerance tolerance_of(convnorm_dtype dtype) {
  switch (dtype) {
    case CONVNORM_F16:
      return {2e-3, 2e-3, 6.2e-5};
    case CONVNORM_BF16:
      return {1.6e-2, 1.6e-2, 1e-6};
    case CONVNORM_F32:
      break;
  }
  return {1e-4, 1e-4, 1e-6};
}

double Comparison::error(float got, float want) {
  if (std::isfinite(got) && std::isfinite(want)) return std::abs(static_cast<double>(got) - static_cast<double>(want));
  const bool both_nan = std::isnan(got) && std::isnan(want);
  if (got == want || (both_nan && allow_nan_)) return 0;
  ++nonfinite_mismatches_;
  return kInfinity;
}

void Comparison::add(std::span<const float> got, std::span<const float> want, int64_t offset) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double err = error(got[i], want[i]);
    const double magnitude = std::isfinite(want[i]) ? std::abs(static_cast<double>(want[i])) : 0;
    const double ratio = err / (tolerance_.absolute + tolerance_.relative * magnitude);
    if (ratio > worst_ratio_) {
      worst_ratio_ = ratio;
      worst_index_ = offset + static_cast<int64_t>(i);
    }
    max_abs_err_ = std::max(max_abs_err_, err);
    if (std::isfinite(want[i])) {
      ++finite_count_;
      const double delta = static_cast<double>(want[i]) - mean_;
      mean_ += delta / static_cast<double>(finite_count_);
      centred_squares_ += delta * (static_cast<double>(want[i]) - mean_);
      error_squares_ += err * err;
    }
  }
  count_ += static_cast<int64_t>(want.size());
}

bool Comparison::pass() const {
  if (!(worst_ratio_ <= 1)) return false;
  if (finite_count_ == 0) return true;
  const double n = static_cast<double>(finite_count_);
  const double spread = std::sqrt(centred_squares_ / n);
  if (spread < tolerance_.smallest_spread) return true;
  // The relative part stays: a large mean costs digits of y that the spread alone would not allow.
  const double magnitude = std::sqrt(mean_ * mean_ + centred_squares_ / n);
  return std::sqrt(error_squares_ / n) <= kSpreadShare * spread + tolerance_.relative * magnitude;
}

}  // namespace convnorm::cli
