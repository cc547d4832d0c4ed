#include "epilogue/scalar_math.hpp"

#include <gtest/gtest.h>

namespace convnorm::epilogue {
namespace {

// The formula of the documentation, in the plainest form; only for arguments where nothing cancels.
double plain(convnorm_op op, double x, double a) {
  switch (op) {
    case CONVNORM_RELU:
      return std::max(x, 0.0);
    case CONVNORM_LEAKY_RELU:
    case CONVNORM_PRELU:
      return x >= 0 ? x : a * x;
    case CONVNORM_SILU:
      return x / (1 + std::exp(-x));
    case CONVNORM_GELU:
      return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case CONVNORM_GELU_TANH:
      return x * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case CONVNORM_MISH:
      return x * std::tanh(std::log1p(std::exp(x)));
    case CONVNORM_ELU:
      return x >= 0 ? x : a * std::expm1(x);
    case CONVNORM_TANH:
      return std::tanh(x);
    case CONVNORM_SIGMOID:
      return 1 / (1 + std::exp(-x));
    default:
      return NAN;
  }
}

bool is_applied(const OpInfo& info) { return info.kind == OpKind::pointwise || info.kind == OpKind::slope; }

TEST(ScalarMath, AgreesWithThePlainFormulas) {
  for (const OpInfo& info : kOps) {
    if (!is_applied(info)) continue;
    for (int i = -300; i <= 300; ++i) {
      const double x = i / 100.0;
      const double expected = plain(info.op, x, 0.3);
      EXPECT_NEAR(apply(info.op, x, 0.3), expected, 1e-14 * std::max(1.0, std::fabs(expected)))
          << info.name << " " << x;
    }
  }
}

TEST(ScalarMath, B019_NanStays) {
  for (const OpInfo& info : kOps) {
    if (is_applied(info)) {
      EXPECT_TRUE(std::isnan(apply(info.op, NAN, 0.3))) << info.name;
    }
  }
}

TEST(ScalarMath, LargeArgumentsHaveTheirLimits) {
  for (const double x : {50.0, 1e4, 1e300}) {
    for (const convnorm_op op : {CONVNORM_RELU, CONVNORM_SILU, CONVNORM_GELU, CONVNORM_GELU_TANH, CONVNORM_MISH,
                                 CONVNORM_ELU, CONVNORM_LEAKY_RELU}) {
      EXPECT_EQ(apply(op, x, 1), x) << op_info(op).name;
    }
    EXPECT_EQ(apply(CONVNORM_TANH, x, 0), 1);
    EXPECT_EQ(apply(CONVNORM_TANH, -x, 0), -1);
    EXPECT_EQ(apply(CONVNORM_SIGMOID, x, 0), 1);
    EXPECT_NEAR(apply(CONVNORM_SIGMOID, -x, 0), 0, 1e-20);
    EXPECT_EQ(apply(CONVNORM_ELU, -x, 2), -2);
  }
}

TEST(ScalarMath, B017_GeluKeepsItsRelativeAccuracyBelowZero) {
  const std::pair<double, double> erf_form[] = {
      {-3, -4.04969e-3}, {-4, -1.26685e-4}, {-5, -1.43326e-6}, {-6, -5.91953e-9}, {-8, -4.97677e-15}};
  const std::pair<double, double> tanh_form[] = {
      {-3, -3.63739e-3}, {-4, -7.02459e-5}, {-5, -2.29180e-7}, {-6, -8.43965e-11}};
  for (const auto& [x, y] : erf_form) EXPECT_NEAR(apply(CONVNORM_GELU, x, 0) / y, 1, 1e-5) << x;
  for (const auto& [x, y] : tanh_form) EXPECT_NEAR(apply(CONVNORM_GELU_TANH, x, 0) / y, 1, 1e-5) << x;
}

TEST(Ops, AreFoundByName) {
  for (const OpInfo& info : kOps) EXPECT_EQ(find_op(info.name), &info);
  EXPECT_EQ(find_op("none"), nullptr);
  EXPECT_EQ(find_op(""), nullptr);
  EXPECT_TRUE(op_info(CONVNORM_ELU).takes_param());
  EXPECT_FALSE(op_info(CONVNORM_PRELU).takes_param());
}

}  // namespace
}  // namespace convnorm::epilogue
