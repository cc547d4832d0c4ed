// Layers of published models at a size that runs in milliseconds, and one plan in the hands of many threads.
#include "operator/layers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/guarded.hpp"
#include "support/pools.hpp"
#include "support/runner.hpp"

namespace convnorm::test {
namespace {

constexpr double kMostProducts = 2e6;

// Shorter first, then narrower; kernel, stride, padding, group structure and ops stay.
Problem scaled_down(Problem p) {
  p.n = std::min<int64_t>(p.n, 2);
  const auto too_large = [&] { return Sizes(p).flops / 2 > kMostProducts; };
  while (too_large() && p.l > 64 && p.l / 2 > 2 * Sizes(p).k_span) p.l /= 2;
  while (too_large() && p.o % 2 == 0 && p.o > 16) {
    const bool depthwise = p.conv_groups == p.c && p.c > 1, instance = p.groups == p.o;
    if (!instance && p.o / 2 % p.groups != 0) break;
    p.o /= 2;
    if (instance) p.groups = p.o;
    if (p.c % 2 == 0) p.c /= 2;
    if (depthwise) p.conv_groups = p.c;
  }
  p.n = too_large() ? 1 : p.n;
  return p;
}

TEST(Layers, EveryPathAtAReducedSize) {
  for (const auto& [name, problem] : layers()) {
    const Problem p = scaled_down(problem);
    // As real signals are: correlated, with an offset.
    EXPECT_EQ(check_every_path(make_inputs(p, Fill::correlated, 3)), "") << name << ": " << print_problem(p);
  }
}

TEST(Layers, HaveAVectorisedPlanWithinItsPromisesAtFullSize) {
  for (const auto& [name, problem] : layers()) {
    for (const int threads : {1, 2, 64}) {
      const convnorm_plan_options options{
          .device = test_device(), .threads = threads, .path = nullptr, .target = nullptr};
      convnorm_plan* plan = nullptr;
      ASSERT_EQ(convnorm_plan_create(&problem, &options, &plan), CONVNORM_OK) << name;
      EXPECT_STRNE(convnorm_plan_path(plan), "reference") << name;
      const size_t y = static_cast<size_t>(Sizes(problem).y_elements * element_size(problem.dtype));
      EXPECT_LE(convnorm_plan_workspace_size(plan), y + (size_t{64} << 20))
          << name << " with " << threads << " threads";
      convnorm_plan_destroy(plan);
    }
  }
}

void execute_from_many_threads(const std::vector<Inputs>& inputs, convnorm_parallel_for pool, int rounds) {
  std::vector<std::unique_ptr<Prepared>> plans;
  std::vector<std::vector<std::byte>> expected;
  for (const Inputs& in : inputs) {
    const Request request{.threads = 2, .pool = pool};
    const Outcome alone = run(in, request);
    ASSERT_EQ(alone.fault, "");
    expected.push_back(alone.bytes);
    plans.push_back(std::make_unique<Prepared>(in, request));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < rounds; ++round) {
        const size_t i = (t + static_cast<size_t>(round)) % plans.size();
        std::vector<std::byte> y(expected[i].size(), Guarded::kPoison),
            workspace(plans[i]->workspace_bytes(), Guarded::kPoison);
        const std::string fault = plans[i]->execute(y.data(), workspace.data());
        if (!fault.empty() || y != expected[i]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (const auto& plan : plans) EXPECT_EQ(plan->inputs_intact(), "");
}

TEST(Concurrency, OnePlanFromFourThreads) {
  for (const char* line :
       {"n=2,c=32,l=65,o=48,k=3,p=1,g=8,bias=1,post=silu", "n=1,c=64,l=7,o=64,k=5,p=2,g=8,post=mish",
        "n=1,c=16,l=1100,o=16,k=3,p=1,cg=16,g=1,pre=prelu", "n=1,c=8,l=3000,o=8,k=9,p=4,g=1,dtype=bf16"}) {
    const std::vector<Inputs> one = {make_inputs(line)};
    for (const convnorm_parallel_for pool : {convnorm_parallel_for{nullptr}, convnorm_parallel_for{in_order}}) {
      execute_from_many_threads(one, pool, 20);
    }
    execute_from_many_threads(one, thread_each, 5);
  }
}

TEST(BugCases, B074_DifferentShapesFromFourThreads) {
  std::vector<Inputs> inputs;
  for (const char* line : {"n=1,c=4,l=63,o=8,k=3,p=1,g=4", "n=1,c=64,l=16,o=64,k=5,p=2,g=8,post=mish",
                           "n=1,c=16,l=1024,o=16,k=3,cg=16,p=1,g=16", "n=1,c=512,l=128,o=8,k=1,g=2,dtype=f16"}) {
    inputs.push_back(make_inputs(line));
  }
  execute_from_many_threads(inputs, in_order, 500);
}

}  // namespace
}  // namespace convnorm::test
