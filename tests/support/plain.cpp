#include "support/plain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "descriptor/elements.hpp"
#include "epilogue/ops.hpp"

namespace convnorm::test {

namespace {

// Vector formulas are fitted to about 2e-7 of max(1, |y|) each, and a row may pass through several.
constexpr double kFormulaError = 1e-6;
constexpr double kContract = 1e-4;
// Largest sum|w||x| / std(z) for which the contract's absolute limit is promised.
constexpr double kMostKappa = 50;

template <class Real>
Real pointwise(convnorm_op op, Real x, Real argument) {
  switch (op) {
    case CONVNORM_RELU:
      return x < 0 ? Real(0) : x;
    case CONVNORM_LEAKY_RELU:
    case CONVNORM_PRELU:
      return x < 0 ? argument * x : x;
    case CONVNORM_SILU:
      return x / (1 + std::exp(-x));
    case CONVNORM_GELU:
      return Real(0.5) * x * (1 + std::erf(x * Real(0.70710678118654752)));
    case CONVNORM_GELU_TANH:
      return Real(0.5) * x * (1 + std::tanh(Real(0.79788456080286536) * (x + Real(0.044715) * x * x * x)));
    case CONVNORM_MISH:
      return x * std::tanh(x > 20 ? x : std::log1p(std::exp(x)));
    case CONVNORM_ELU:
      return x < 0 ? argument * std::expm1(x) : x;
    case CONVNORM_TANH:
      return std::tanh(x);
    case CONVNORM_SIGMOID:
      return 1 / (1 + std::exp(-x));
    default:
      return x;
  }
}

template <class Real>
class Plain {
 public:
  Plain(const Inputs& inputs, Order order, int split_parts = 0)
      : in_(inputs), p_(inputs.problem), order_(order), split_parts_(split_parts) {}

  std::vector<double> operator()() {
    const Sizes& s = in_.sizes;
    std::vector<double> y(static_cast<size_t>(s.y_elements), 0.0);
    for (int64_t n = 0; n < p_.n; ++n) {
      const int64_t length = p_.lengths ? in_.lengths[static_cast<size_t>(n)] : p_.l;
      l_ = output_length(p_, length);
      z_.assign(static_cast<size_t>(p_.o * l_), Real(0));
      if (l_ == 0) continue;
      convolve(n, length);
      if (has_norm(p_)) {
        for (int64_t g = 0; g < p_.groups; ++g) normalise(g);
      }
      channels_ = p_.o;
      for (int i = 0; i < p_.post_count; ++i) apply(p_.post[i], n);
      for (int64_t c = 0; c < channels_; ++c) {
        for (int64_t l = 0; l < l_; ++l)
          y[static_cast<size_t>((n * s.c_y + c) * s.l_out + l)] = static_cast<double>(*row(c, l));
      }
    }
    return y;
  }

  // Largest sum|w||x| / std(z) of any group.
  double kappa() const { return kappa_; }

 private:
  Real* row(int64_t c, int64_t l = 0) { return z_.data() + c * l_ + l; }
  static Real at(const std::vector<float>& values, int64_t i) {
    return static_cast<Real>(values[static_cast<size_t>(i)]);
  }
  static Real slope(const std::vector<float>& values, int64_t c) { return at(values, values.size() == 1 ? 0 : c); }

  std::vector<Real> padded(int64_t n, int64_t c, int64_t length) const {
    std::vector<Real> row(static_cast<size_t>(p_.pad_left + length + p_.pad_right), Real(0));
    for (int64_t j = 0; j < static_cast<int64_t>(row.size()); ++j) {
      int64_t i = j - p_.pad_left;
      if (i < 0 || i >= length) {
        if (p_.pad == CONVNORM_ZEROS) continue;
        if (p_.pad == CONVNORM_REPLICATE) i = std::clamp<int64_t>(i, 0, length - 1);
        if (p_.pad == CONVNORM_REFLECT) i = i < 0 ? -i : 2 * length - 2 - i;
      }
      row[static_cast<size_t>(j)] = at(in_.x, (n * p_.c + c) * p_.l + i);
    }
    return row;
  }

  void convolve(int64_t n, int64_t length) {
    const Sizes& s = in_.sizes;
    std::vector<std::vector<std::vector<Real>>> x;  // [channel][part][position]
    for (int64_t c = 0; c < p_.c; ++c) x.push_back(parts_of(padded(n, c, length)));
    magnitude_.assign(z_.size(), Real(0));
    const int64_t steps = s.c_per_conv_group * p_.k;
    for (int64_t o = 0; o < p_.o; ++o) {
      const Real bias = p_.bias ? at(in_.bias, o) : Real(0);
      if (order_ == Order::channels_outside) std::fill_n(row(o), l_, bias);
      for (int64_t i = 0; i < steps; ++i) {
        int64_t c = i / p_.k, k = i % p_.k;
        if (order_ == Order::taps_outside) c = i % s.c_per_conv_group, k = i / s.c_per_conv_group;
        if (order_ == Order::backwards) c = (steps - 1 - i) / p_.k, k = (steps - 1 - i) % p_.k;
        const std::vector<std::vector<Real>> w = parts_of({at(in_.w, o * steps + c * p_.k + k)});
        const auto& from = x[static_cast<size_t>(o / s.o_per_conv_group * s.c_per_conv_group + c)];
        for (size_t i_w = 0; i_w < w.size(); ++i_w) {
          for (size_t i_x = 0; i_w + i_x < from.size(); ++i_x)
            add_products(o, w[i_w][0], from[i_x].data() + k * p_.dilation);
        }
      }
      for (int64_t l = 0; l < l_; ++l) {
        if (order_ != Order::channels_outside) *row(o, l) += bias;
        *row(o, l) = pointwise(p_.pre.op, *row(o, l), p_.pre.op == CONVNORM_PRELU ? slope(in_.pre_slope, o) : Real(0));
      }
    }
  }

  // The parts of each value, one vector after the other; without splitting the values themselves.
  std::vector<std::vector<Real>> parts_of(std::vector<Real> rest) const {
    if (split_parts_ == 0) return {std::move(rest)};
    std::vector<std::vector<Real>> parts(static_cast<size_t>(split_parts_), rest);
    for (std::vector<Real>& part : parts) {
      for (size_t i = 0; i < rest.size(); ++i) {
        part[i] = static_cast<Real>(static_cast<double>(BFloat16(static_cast<double>(rest[i]))));
        rest[i] -= part[i];
      }
    }
    return parts;
  }

  void add_products(int64_t o, Real w, const Real* from) {
    Real* to = row(o);
    Real* sum = magnitude_.data() + o * l_;
    for (int64_t l = 0; l < l_; ++l) {
      const Real x = from[l * p_.stride];
      // Units that multiply parts form exact products and cut their sums off.
      to[l] = split_parts_ == 0 ? to[l] + w * x : truncated(double{to[l]} + double{w} * double{x});
      sum[l] += std::abs(w * x);
    }
  }

  static Real truncated(double value) {
    const auto rounded = static_cast<Real>(value);
    if constexpr (std::is_same_v<Real, float>) {
      // The next one towards zero: std::nextafter() in a form that compilers vectorise, for this is what tests wait
      // for.
      const auto bits = std::bit_cast<uint32_t>(rounded);
      return std::bit_cast<float>(bits - (std::abs(double{rounded}) > std::abs(value) ? 1u : 0u));
    }
    return rounded;
  }

  void normalise(int64_t group) {
    const int64_t rows = in_.sizes.o_per_norm_group, count = rows * l_;
    Real* z = row(group * rows);
    Real sum = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) sum += z[i];
    const Real mean = sum / static_cast<Real>(count);
    for (int64_t i = 0; i < count; ++i) squares += (z[i] - mean) * (z[i] - mean);
    const Real rstd = 1 / std::sqrt(squares / static_cast<Real>(count) + static_cast<Real>(p_.eps));
    const Real* magnitude = magnitude_.data() + group * count;
    kappa_ = std::max(kappa_, static_cast<double>(*std::max_element(magnitude, magnitude + count) * rstd));
    for (int64_t o = group * rows; o < (group + 1) * rows; ++o) {
      const Real gamma = p_.affine ? at(in_.gamma, o) : Real(1), beta = p_.affine ? at(in_.beta, o) : Real(0);
      for (int64_t l = 0; l < l_; ++l) *row(o, l) = (*row(o, l) - mean) * (rstd * gamma) + beta;
    }
  }

  void apply(const convnorm_stage& stage, int64_t n) {
    if (stage.op == CONVNORM_GLU) channels_ /= 2;
    for (int64_t c = 0; c < channels_; ++c) {
      for (int64_t l = 0; l < l_; ++l) {
        Real& z = *row(c, l);
        switch (stage.op) {
          case CONVNORM_FILM:
            z = z * at(in_.film_scale, n * channels_ + c) + at(in_.film_shift, n * channels_ + c);
            break;
          case CONVNORM_ADD:
            z += at(in_.residual, (n * channels_ + c) * in_.sizes.l_out + l);
            break;
          case CONVNORM_GLU:
            z *= pointwise(CONVNORM_SIGMOID, *row(c + channels_, l), Real(0));
            break;
          default:
            z = pointwise(stage.op, z,
                          stage.op == CONVNORM_PRELU ? slope(in_.post_slope, c) : static_cast<Real>(stage.param));
        }
      }
    }
  }

  const Inputs& in_;
  const Problem& p_;
  Order order_;
  int split_parts_;
  std::vector<Real> z_, magnitude_;
  int64_t l_ = 0, channels_ = 0;
  double kappa_ = 0;
};

// Half a unit in the last place of the type at `value`.
double half_ulp(convnorm_dtype dtype, double value) {
  const int bits = dtype == CONVNORM_F32 ? 24 : dtype == CONVNORM_F16 ? 11 : 8;
  const int least = dtype == CONVNORM_F16 ? -14 : -126;
  const int exponent = value == 0 || !std::isfinite(value) ? least : std::max(std::ilogb(value), least);
  return std::ldexp(1.0, exponent - bits);
}

}  // namespace

std::vector<double> evaluate_in_double(const Inputs& inputs) {
  return Plain<double>(inputs, Order::channels_outside)();
}

std::vector<double> evaluate_in_float(const Inputs& inputs, Order order, int split_parts) {
  return Plain<float>(inputs, order, split_parts)();
}

Expected::Expected(const Inputs& inputs) : dtype(inputs.problem.dtype) {
  Plain<double> truth(inputs, Order::channels_outside);
  y = truth();
  well_conditioned = has_norm(inputs.problem) && truth.kappa() <= kMostKappa;
  error = error_with(0, inputs);
}

double Expected::error_with(int split_parts, const Inputs& inputs) const {
  double& largest = split_errors_[split_parts];
  if (largest >= 0) return largest;
  largest = 0;
  for (const Order order : {Order::channels_outside, Order::taps_outside, Order::backwards}) {
    const std::vector<double> plain = evaluate_in_float(inputs, order, split_parts);
    for (size_t i = 0; i < y.size(); ++i) {
      const double difference = std::fabs(plain[i] - y[i]) / std::max(1.0, std::fabs(y[i]));
      if (std::isfinite(difference)) largest = std::max(largest, difference);
    }
  }
  return largest;
}

double Expected::error_in(Arithmetic arithmetic, const Inputs& inputs) const {
  return arithmetic == Arithmetic::double_precision ? 0
                                                    : std::max(error, error_with(static_cast<int>(arithmetic), inputs));
}

double Expected::tolerance(size_t i, Arithmetic arithmetic, const Inputs& inputs) const {
  const double magnitude = std::fabs(y[i]);
  if (arithmetic == Arithmetic::double_precision)
    return half_ulp(dtype, y[i]) * (1 + 1e-9) + 1e-9 * std::max(1.0, magnitude);
  double tolerance = (2 * error_in(arithmetic, inputs) + kFormulaError) * std::max(1.0, magnitude);
  // One part is what precision=medium asks for, which promises 16-bit products and no more.
  if (well_conditioned && arithmetic != Arithmetic::one_part)
    tolerance = std::min(tolerance, kContract + kContract * magnitude);
  return dtype == CONVNORM_F32 ? tolerance : tolerance + half_ulp(dtype, magnitude + tolerance);
}

std::string compare(const Inputs& inputs, const Expected& expected, const std::vector<double>& y,
                    Arithmetic arithmetic) {
  if (y.size() != expected.y.size()) return fmt::format("{} elements instead of {}", y.size(), expected.y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const double want = expected.y[i];
    if ((std::isnan(want) && std::isnan(y[i])) || want == y[i]) continue;
    const double tolerance = expected.tolerance(i, arithmetic, inputs);
    if (std::fabs(y[i] - want) <= tolerance) continue;
    // From here on f16 rounds to infinity.
    if (std::isinf(y[i]) && expected.dtype == CONVNORM_F16 && std::fabs(want) + tolerance >= 65520) continue;
    const int64_t at = static_cast<int64_t>(i), l = inputs.sizes.l_out, c = inputs.sizes.c_y;
    return fmt::format("y[{}, {}, {}] is {:.9g} instead of {:.9g}: off by {:.3g}, allowed {:.3g}", at / l / c,
                       at / l % c, at % l, y[i], want, std::fabs(y[i] - want), tolerance);
  }
  return "";
}

}  // namespace convnorm::test
