// What this machine can do: fused multiply-adds from registers, and a streaming copy.
#include <algorithm>
#include <chrono>
#include <vector>

#include "descriptor/problem.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/run.hpp"
#include "kernels/cpu/targets.hpp"
#include "plan/default_pool.hpp"

namespace convnorm::cpu {

namespace {

template <class F>
double seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

convnorm_machine measure(int threads, const std::string& target) {
  const Kernels* kernels = find_kernels(target);
  if (!kernels)
    throw Failure(CONVNORM_UNSUPPORTED, "target " + target + " is not available; convnorm info lists those that are");
  const Parallel parallel(default_parallel_for, &threads);
  convnorm_machine machine = {.fma_gflops = 0, .bandwidth_gbps = 0, .threads = threads};

  // The best of many short rounds of each worker, timed by itself while the others work: the peak is what the machine
  // can do, not what it did while it was busy with something else or waited at a barrier.
  constexpr int64_t kRounds = 50'000;
  constexpr int kRepeats = 100;
  std::vector<double> best(static_cast<size_t>(threads));
  parallel(threads, [&](int i) {
    for (int round = 0; round < kRepeats; ++round) {
      double operations = 0;
      const double time = seconds([&] { operations = kernels->fma_chains(kRounds); });
      best[static_cast<size_t>(i)] = std::max(best[static_cast<size_t>(i)], operations / time / 1e9);
    }
  });
  for (const double each : best) machine.fma_gflops += each;

  // Beyond the last-level cache, but bounded.
  const int64_t floats = std::clamp<int64_t>(cache_bytes(3), 16 << 20, 64 << 20) / 4;
  std::vector<float> from(static_cast<size_t>(floats), 1.0f), to(static_cast<size_t>(floats));
  for (int round = 0; round < 7; ++round) {
    const double time = seconds([&] {
      parallel(threads, [&](int i) {
        const int64_t begin = floats * i / threads, end = floats * (i + 1) / threads;
        kernels->copy(from.data() + begin, to.data() + begin, end - begin);
        hwy::FlushStream();
      });
    });
    if (round > 0)
      machine.bandwidth_gbps = std::max(machine.bandwidth_gbps, 2.0 * static_cast<double>(floats) * 4 / time / 1e9);
  }
  return machine;
}

}  // namespace convnorm::cpu
