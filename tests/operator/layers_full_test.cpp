// A few layers of published models at full size, by their planned path.
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/layers.hpp"
#include "support/runner.hpp"

namespace convnorm::test {
namespace {

class FullSize : public testing::TestWithParam<const char*> {};

TEST_P(FullSize, AgreesWithTheTruth) {
  const auto all = layers();
  const auto layer = std::find_if(all.begin(), all.end(), [](const auto& each) { return each.first == GetParam(); });
  ASSERT_NE(layer, all.end());
  const Inputs in = make_inputs(layer->second, Fill::correlated, 5);
  const Outcome outcome = run(in, {.threads = 2});
  ASSERT_EQ(outcome.fault, "");
  EXPECT_NE(outcome.path, "reference");
  EXPECT_EQ(compare(in, Expected(in), outcome.y, outcome.arithmetic), "") << outcome.path;
}

INSTANTIATE_TEST_SUITE_P(Layers, FullSize,
                         testing::Values("dp_b1_512", "dp_b1_film", "diffuser_rl", "lucid_1d", "encodec_stem",
                                         "tasnet_dw_prelu", "conformer_dw", "w2v2_l0_b1", "fcpe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace convnorm::test
