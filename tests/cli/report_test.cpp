#include "cli/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cli/failure.hpp"
#include "cli/memory.hpp"
#include "cli/units.hpp"

namespace convnorm::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Units, SuitTheSize) {
  EXPECT_EQ(duration(0.0241), "0.0241 us");
  EXPECT_EQ(duration(21.314), "21.31 us");
  EXPECT_EQ(duration(999.97), "1 ms");
  EXPECT_EQ(duration(5.401e9), "5401 s");
  EXPECT_EQ(with_unit(1.506e14, "FLOP/s"), "150.6 TFLOP/s");
  EXPECT_EQ(with_unit(28.4e12, "B"), "28.4 TB");
  EXPECT_EQ(with_unit(12, "B"), "12 B");
}

Json record() {
  return {{"name", "default"},  {"problem", "n=1,c=1"}, {"path", "split"},     {"target", "AVX2"},
          {"compared", "all"},  {"max_abs_err", 1e-6},  {"worst_ratio", 0.01}, {"worst_at", {1, 2, 3}},
          {"pass", true},       {"median_us", 21314.0}, {"gflops", 1.5e5},     {"gbps", nullptr},
          {"floor_us", 10.0},   {"floor_share", 0.5},   {"pack_us", 3.0},      {"cold", false},
          {"fma_gflops", 60.0}, {"clock_mhz", 1980}};
}

TEST(Report, TextIsInColumnsBelowTheProblem) {
  EXPECT_EQ(text_of(record()),
            "default  n=1,c=1\n"
            "  PASS  split (AVX2)            worst_ratio 0.01 at (1, 2, 3)                   max_abs_err 1e-06       "
            "compared all\n"
            "        median 21.31 ms         150 TFLOP/s             gbps not finite         floor 10 us (50%)\n"
            "        pack 3 us               not cold                fma 60 GFLOP/s          clock 1980 MHz");
}

TEST(Report, TextHoldsTheTwoStepsAndTheFault) {
  Json failed = record();
  failed["pass"] = false;
  failed["unfused"] = {{"path", "split + split"}, {"target", "AVX2"}, {"median_us", 3.0}};
  failed["unfused_ratio"] = 2.5;
  failed["fault"] = "wrote outside of y";
  EXPECT_THAT(text_of(failed),
              AllOf(HasSubstr("\n  FAIL  "),
                    HasSubstr("\n  unfused, as two steps:\n        split + split (AVX2)\n        median 3 us\n"),
                    HasSubstr("\n        unfused_ratio 2.5\n        fault wrote outside of y"), Not(HasSubstr(" \n"))));
}

TEST(Report, ASummaryStaysOneLine) {
  EXPECT_EQ(text_of({{"problems", 41}, {"paths", {"split", "moments"}}, {"pass", true}}),
            "problems 41  paths split, moments  PASS");
}

TEST(Memory, RefusesWithWhatIsNeededAndWhatThereIs) {
  require_memory({0, 0});
  try {
    require_memory({28.4e15, 0});
    ADD_FAILURE() << "accepted";
  } catch (const BadInput& refusal) {
    EXPECT_THAT(refusal.what(), AllOf(HasSubstr("28.4 PB of the host's memory are needed"), HasSubstr("are left")));
  }
}

TEST(Memory, CountsEveryTensorOnce) {
  const convnorm_problem problem = parse_line("n=2,c=4,l=30,o=8,k=3,p=1,g=4,dtype=f16,post=add");
  convnorm_plan_options options;
  convnorm_plan_options_init(&options);
  const Plan plan(problem, options);
  const double tensors = 2 * (2 * 4 * 30 + 8 * 4 * 3 + 2 * 2 * 8 * 30) + 4 * 2 * 8;
  const double beside = static_cast<double>(plan.packed_size() + plan.workspace_size());
  // On the host as drawn, and as the call gets them.
  EXPECT_EQ(memory_need(plan).host, 2 * tensors + beside);
  EXPECT_EQ(memory_need(plan, 2).host, 3 * tensors + beside);
  EXPECT_EQ(memory_need(plan).device, 0);
}

}  // namespace
}  // namespace convnorm::cli
