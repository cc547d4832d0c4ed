// The vector formulas against long double, op by op as ops.def lists them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "epilogue/ops.hpp"
#include "kernel_test.hpp"

namespace convnorm::test {
namespace {

using Long = long double;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Formula {
  convnorm_op op;
  float param;
  Long (*exact)(Long x, Long param);
  // Allowed: relative to the result down to `from`, and everywhere `absolute` of max(1, |x|).
  double relative, absolute;
  double from;
  float at_minus_infinity;  // as PyTorch gives it
  float at_infinity;
};

Long sigmoid(Long x) { return 1 / (1 + std::exp(-x)); }

// erfcl and expm1l keep the tails that 1 + erf and exp - 1 would cancel.
const Formula kFormulas[] = {
    {CONVNORM_RELU, 0, [](Long x, Long) { return x < 0 ? 0.0L : x; }, 0, 0, -HUGE_VAL, 0, HUGE_VALF},
    {CONVNORM_LEAKY_RELU, 0.2f, [](Long x, Long a) { return x < 0 ? a * x : x; }, 6e-8, 0, -HUGE_VAL, -HUGE_VALF,
     HUGE_VALF},
    {CONVNORM_PRELU, -0.7f, [](Long x, Long a) { return x < 0 ? a * x : x; }, 6e-8, 0, -HUGE_VAL, HUGE_VALF, HUGE_VALF},
    {CONVNORM_SILU, 0, [](Long x, Long) { return x * sigmoid(x); }, 6e-7, 6e-7, -87, kNaN, HUGE_VALF},
    {CONVNORM_GELU, 0, [](Long x, Long) { return x * std::erfc(-x / std::sqrt(2.0L)) / 2; }, 1e-3, 3e-7, -8.3, kNaN,
     HUGE_VALF},
    {CONVNORM_GELU_TANH, 0,
     [](Long x, Long) { return x * sigmoid(2 * std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x)); }, 2e-5,
     6e-7, -9.5, kNaN, HUGE_VALF},
    {CONVNORM_MISH, 0, [](Long x, Long) { return x * std::tanh(std::log1p(std::exp(x))); }, 8e-7, 8e-7, -87, kNaN,
     HUGE_VALF},
    {CONVNORM_ELU, 1.5f, [](Long x, Long a) { return x < 0 ? a * std::expm1(x) : x; }, 6e-7, 6e-7, -HUGE_VAL, -1.5f,
     HUGE_VALF},
    {CONVNORM_TANH, 0, [](Long x, Long) { return std::tanh(x); }, 6e-7, 6e-7, -HUGE_VAL, -1, 1},
    {CONVNORM_SIGMOID, 0, [](Long x, Long) { return sigmoid(x); }, 6e-7, 6e-7, -87, 0, 1},
};

class FormulaTest : public KernelTest {
 protected:
  std::vector<float> apply(const Formula& f, std::vector<float> values) {
    kernels().pointwise(values.data(), static_cast<int64_t>(values.size()), f.op, f.param);
    return values;
  }
};

TEST(FormulaTable, HoldsEveryPointwiseOp) {
  for (const OpInfo& info : kOps) {
    if (info.kind != OpKind::pointwise && info.kind != OpKind::slope) continue;
    const auto same = [&](const Formula& f) { return f.op == info.op; };
    EXPECT_EQ(std::count_if(std::begin(kFormulas), std::end(kFormulas), same), 1) << info.name;
  }
}

TEST_P(FormulaTest, StaysCloseToTheExactValue) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 15013) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-x.back());
  }
  for (const Formula& f : kFormulas) {
    const std::vector<float> y = apply(f, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const Long want = f.exact(x[i], f.param);
      const auto off = static_cast<double>(std::fabs(y[i] - want));
      const auto magnitude = static_cast<double>(std::fabs(want));
      // Of a subnormal result, and of a product that overflows, only the magnitude is asked.
      if (magnitude < 1e-36 && std::fabs(y[i]) < 2e-36) continue;
      if (magnitude > 3.4e38) continue;
      const double absolute = f.absolute * std::max(1.0, std::fabs(static_cast<double>(x[i])));
      if (x[i] >= f.from) {
        ASSERT_LE(off, f.relative * magnitude) << op_info(f.op).name << "(" << x[i] << ") = " << y[i];
      }
      if (absolute > 0) {
        ASSERT_LE(off, absolute) << op_info(f.op).name << "(" << x[i] << ") = " << y[i];
      }
    }
  }
}

TEST_P(FormulaTest, KeepsNaNAndInfinitiesAsPyTorchDoes) {
  for (const Formula& f : kFormulas) {
    const std::vector<float> y = apply(f, {kNaN, -kNaN, -HUGE_VALF, HUGE_VALF});
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << op_info(f.op).name;
    const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    EXPECT_TRUE(same(y[2], f.at_minus_infinity)) << op_info(f.op).name << "(-inf) = " << y[2];
    EXPECT_TRUE(same(y[3], f.at_infinity)) << op_info(f.op).name << "(inf) = " << y[3];
  }
}

// The lane, and whether it is in a tail, must not matter; neither must an infinity or NaN beside it.
TEST_P(FormulaTest, GivesTheSameBitsInEveryLane) {
  for (const Formula& f : kFormulas) {
    for (const float x : {-6.3f, -0.3f, 0.0f, 0.7f, 9.1f}) {
      const float want = apply(f, {x})[0];
      for (int64_t count = 1; count <= 67; ++count) {
        std::vector<float> values(static_cast<size_t>(count), kNaN);
        for (size_t i = 0; i < values.size(); i += 2) values[i] = x;
        Row row(values);
        kernels().pointwise(row.data(), count, f.op, f.param);
        const std::vector<float> got = row.values();
        for (size_t i = 0; i < got.size(); ++i) {
          if (i % 2 == 0) {
            ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want)) << op_info(f.op).name << " " << x;
          } else {
            ASSERT_TRUE(std::isnan(got[i])) << op_info(f.op).name;
          }
        }
        ASSERT_TRUE(row.bands_intact());
      }
    }
  }
}

CONVNORM_INSTANTIATE_KERNEL_TEST(FormulaTest);

}  // namespace
}  // namespace convnorm::test
