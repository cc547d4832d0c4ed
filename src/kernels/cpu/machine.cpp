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
  if (!kernels) throw Failure(CONVNORM_UNSUPPORTED, "target " + target + " is not available; convnorm info lists those that are");
  const Parallel parallel(default_parallel_for, &threads);
  convnorm_machine machine = {.fma_gflops = 0, .bandwidth_gbps = 0, .threads = threads};

  // The best of many short rounds: the peak is what the machine can do, not what it did while others ran.
  constexpr int64_t kRounds = 100'000;
  for (int round = 0; round < 100; ++round) {
    std::vector<double> operations(static_cast<size_t>(threads));
    const double time = seconds([&] {
      parallel(threads, [&](int i) { operations[static_cast<size_t>(i)] = kernels->fma_chains(kRounds); });
    });
    double total = 0;
    for (const double o : operations) total += o;
    machine.fma_gflops = std::max(machine.fma_gflops, total / time / 1e9);
  }

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
    if (round > 0) machine.bandwidth_gbps = std::max(machine.bandwidth_gbps, 2.0 * static_cast<double>(floats) * 4 / time / 1e9);
  }
  return machine;
}

}  // namespace convnorm::cpu
