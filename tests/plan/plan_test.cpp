#include "plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/cuda/backend.hpp"
#include "plan/default_pool.hpp"

namespace convnorm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const Problem kProblem = parse_problem("n=2,c=6,l=20,o=8,k=3,p=1,g=4,bias=1,post=silu");

std::string failure(const convnorm_plan_options& options, convnorm_status status) {
  try {
    make_plan(kProblem, options);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), status) << failure.what();
    return failure.what();
  }
  ADD_FAILURE() << "a plan was made";
  return "";
}

TEST(Plan, B104_ReportsTheForcedPath) {
  const auto plan = make_plan(kProblem, {.path = "reference"});
  EXPECT_STREQ(plan->implementation->name, "reference");
  EXPECT_EQ(plan->target, "scalar");
  EXPECT_TRUE(plan->refusals.empty());
}

TEST(Plan, TheReferenceIsLastAndAcceptsEverything) {
  EXPECT_STREQ(registry(CONVNORM_CPU).back().name, "reference");
  const auto plan = make_plan(kProblem, {.target = "scalar"});
  EXPECT_STREQ(plan->implementation->name, "reference");
  EXPECT_EQ(plan->refusals.size(), registry(CONVNORM_CPU).size() - 1);
  for (const auto& [name, reason] : plan->refusals) EXPECT_THAT(reason, HasSubstr("scalar")) << name;
}

TEST(Plan, RefusesAForcedPathWithItsReason) {
  EXPECT_THAT(failure({.path = "split", .target = "scalar"}, CONVNORM_UNSUPPORTED),
              AllOf(HasSubstr("split"), HasSubstr("vector instruction set")));
}

TEST(Plan, ListsTheNamesItKnows) {
  EXPECT_THAT(failure({.path = "fastest"}, CONVNORM_INVALID_ARGUMENT),
              AllOf(HasSubstr("\"fastest\""), HasSubstr("small_l, moments, resident, streaming, split"),
                    HasSubstr(", reference")));
  EXPECT_THAT(failure({.target = "AVX9"}, CONVNORM_INVALID_ARGUMENT), AllOf(HasSubstr("AVX9"), HasSubstr("scalar")));
}

TEST(Plan, TellsAPathOrTargetOfTheOtherDeviceFromATypingError) {
  EXPECT_THAT(failure({.target = "sm_90"}, CONVNORM_INVALID_ARGUMENT),
              AllOf(HasSubstr("\"sm_90\" is one of GPUs"), HasSubstr("--device cuda")));
  if (!registry(CONVNORM_CUDA).empty()) {
    EXPECT_THAT(failure({.device = CONVNORM_CUDA, .path = "reference"}, CONVNORM_INVALID_ARGUMENT),
                AllOf(HasSubstr("reference is one of CPUs"), HasSubstr("--device cpu")));
    EXPECT_THAT(failure({.path = "any_arch"}, CONVNORM_INVALID_ARGUMENT),
                AllOf(HasSubstr("any_arch is one of GPUs"), HasSubstr("--device cuda")));
  }
  if (cuda::presence().usable) {
    EXPECT_THAT(failure({.device = CONVNORM_CUDA, .target = "scalar"}, CONVNORM_INVALID_ARGUMENT),
                HasSubstr("scalar is an instruction set of CPUs"));
  }
}

TEST(Plan, RefusesAPromiseThatIsNoYesOrNo) {
  EXPECT_THAT(failure({.constant_weights = 2}, CONVNORM_INVALID_ARGUMENT), HasSubstr("constant_weights=2"));
}

// A path of a known time, and one that refuses.
class Timed final : public Executable {
 public:
  explicit Timed(double us) : us_(us) {}
  size_t packed_bytes() const override { return 0; }
  void pack(const void*, void*, const Launch&) const override {}
  size_t workspace_bytes() const override { return 0; }
  void run(const convnorm_tensors&, const void*, void*, const Launch&) const override {}
  std::vector<std::pair<std::string, std::string>> config() const override { return {}; }
  Accounting accounting() const override { return {}; }
  double expected_us() const override { return us_; }

 private:
  double us_;
};

TEST(Plan, TakesThePathOfTheLeastExpectedTime) {
  constexpr Implementation kPaths[] = {
      {"slow", "", "", false, [](const PlanRequest&) -> Answer { return std::make_unique<Timed>(5); }},
      {"fast", "", "", false, [](const PlanRequest&) -> Answer { return std::make_unique<Timed>(3); }},
      {"unable", "", "", false, [](const PlanRequest&) -> Answer { return Refusal{"it cannot"}; }},
      {"as fast", "", "", false, [](const PlanRequest&) -> Answer { return std::make_unique<Timed>(3); }}};
  const PlanRequest request{kProblem, Sizes(kProblem), 1, "scalar"};
  const Choice choice = choose(kPaths, request, nullptr);
  EXPECT_STREQ(choice.implementation->name, "fast");
  EXPECT_THAT(choice.refusals, ElementsAre(Pair("unable", "it cannot")));
  EXPECT_THAT(choice.alternatives, ElementsAre(Pair("as fast", 3), Pair("slow", 5)));
  EXPECT_STREQ(choose(kPaths, request, "slow").implementation->name, "slow");

  auto plan = make_plan(kProblem, {.path = "reference"});
  plan->executable = std::make_unique<Timed>(3000);
  plan->alternatives = {{"slow", 5000}};
  plan->path_was_named = false;
  EXPECT_THAT(explain(*plan, nullptr, CONVNORM_TEXT),
              AllOf(HasSubstr("expected         3 ms"), HasSubstr("alternatives     slow: 5 ms")));
  const auto json = nlohmann::json::parse(explain(*plan, nullptr, CONVNORM_JSON));
  EXPECT_EQ(json["expected_us"], 3000);
  EXPECT_EQ(json["alternatives"][0]["path"], "slow");
  EXPECT_EQ(json["alternatives"][0]["expected_us"], 5000);
  EXPECT_TRUE(json["refusals"].empty());
}

TEST(Plan, B073_SaysThatThereIsNoCuda) {
  if (!cuda::presence().usable) {
    EXPECT_THAT(failure({.device = CONVNORM_CUDA}, CONVNORM_NO_DEVICE), HasSubstr("--device cpu"));
  }
  EXPECT_THAT(failure({.device = static_cast<convnorm_device>(5)}, CONVNORM_INVALID_ARGUMENT), HasSubstr("5"));
  EXPECT_EQ(registry(CONVNORM_CUDA).empty(), !cuda::presence().compiled);
  EXPECT_EQ(cuda::presence().toolkit.empty(), !cuda::presence().compiled);
}

TEST(Plan, ChecksTheNumberOfThreads) {
  EXPECT_THAT(failure({.threads = -1}, CONVNORM_INVALID_ARGUMENT), HasSubstr("threads=-1"));
  EXPECT_THAT(failure({.threads = 1000000}, CONVNORM_INVALID_ARGUMENT), HasSubstr("threads=1000000"));
  EXPECT_EQ(make_plan(kProblem, {.threads = 3})->threads, 3);
  EXPECT_EQ(make_plan(kProblem, {})->threads, default_threads());
}

TEST(Plan, ValidatesTheProblem) {
  Problem broken = kProblem;
  broken.groups = 3;
  EXPECT_THROW(make_plan(broken, {}), Failure);
}

TEST(Plan, ScratchDoesNotGrowWithThreadsThatHaveNothingToDo) {
  const Problem one_group = parse_problem("n=1,c=1,l=4096,o=4,k=1,g=1");
  const auto one = make_plan(one_group, {.threads = 1, .path = "reference"});
  const auto many = make_plan(one_group, {.threads = 64, .path = "reference"});
  EXPECT_EQ(one->executable->workspace_bytes(), many->executable->workspace_bytes());
}

TEST(DefaultPool, CallsEveryIndexOnce) {
  std::vector<int> calls(1000);
  int threads = 4;
  Parallel(default_parallel_for, &threads)(1000, [&](int i) { ++calls[static_cast<size_t>(i)]; });
  EXPECT_THAT(calls, testing::Each(1));
}

TEST(Explain, TextNamesTheChoiceItsCostsAndTheRefusals) {
  const auto plan = make_plan(kProblem, {.threads = 2, .target = "scalar"});
  const std::string text = explain(*plan, nullptr, CONVNORM_TEXT);
  EXPECT_THAT(text, AllOf(HasSubstr(print_problem(kProblem)), HasSubstr("reference"), HasSubstr("small_l: it needs"),
                          HasSubstr("guarantees"), Not(HasSubstr("floor")), Not(HasSubstr("expected  "))));
}

TEST(Explain, SaysThatANamedPathLeavesTheOthersUnasked) {
  EXPECT_THAT(explain(*make_plan(kProblem, {.path = "reference"}), nullptr, CONVNORM_TEXT),
              HasSubstr("refusals         not asked: the path was named"));
}

TEST(Explain, JsonHoldsTheSameAsNumbers) {
  const auto plan = make_plan(kProblem, {.threads = 2, .target = "scalar"});
  const convnorm_machine machine{.fma_gflops = 1, .bandwidth_gbps = 1, .threads = 2};
  const auto json = nlohmann::json::parse(explain(*plan, &machine, CONVNORM_JSON));
  const double flops = 2.0 * 2 * 8 * 20 * 6 * 3;
  const double bytes = 4.0 * (2 * 6 * 20 + 8 * 6 * 3 + 2 * 8 * 20 + 3 * 8);
  EXPECT_EQ(json["problem"], print_problem(kProblem));
  EXPECT_EQ(json["path"], "reference");
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["flops"], flops);
  EXPECT_EQ(json["min_bytes"], bytes);
  EXPECT_EQ(json["floor_us"], std::max(flops, bytes) / 1e3);
  EXPECT_EQ(json["floor_math_us"], flops / 1e3);
  EXPECT_EQ(json["floor_memory_us"], bytes / 1e3);
  EXPECT_FALSE(json.contains("expected_us"));  // CPUs go by the order of the paths
  EXPECT_THAT(explain(*plan, &machine, CONVNORM_TEXT), AllOf(HasSubstr("floor            "), Not(HasSubstr("_us"))));
  EXPECT_EQ(json["refusals"].size(), registry(CONVNORM_CPU).size() - 1);
  EXPECT_EQ(json["refusals"][0]["path"], "small_l");
  EXPECT_GE(json["guarantees"].size(), 3u);
}

}  // namespace
}  // namespace convnorm
