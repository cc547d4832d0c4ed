#include "cli/timing.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include "cli/buffer.hpp"
#include "cli/random.hpp"

namespace convnorm::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Below this a set is so small that going through all of them would take longer than the timing itself.
constexpr size_t kMostSets = 16384;

size_t input_bytes(const Operands& operands, const char* name) {
  const auto found = operands.tensors.find(name);
  return found == operands.tensors.end() ? 0 : found->second.data.size();
}

// The large tensors of a call; the small ones are shared by all sets.
struct BufferSet {
  BufferSet(const Subject& subject, const Content& content)
      : x(input_bytes(*content.operands, "x")),
        residual(input_bytes(*content.operands, "residual")),
        packed(subject.packed_size),
        y(content.expected.data.size()) {
    const Clock::time_point start = Clock::now();
    subject.pack(content.operands->tensors.at("weight").data.data(), packed.data());
    pack_seconds = seconds_since(start);
  }

  void load(const Content& from) {
    content = &from;
    copy("x", x);
    copy("residual", residual);
    y.poison();
  }

  convnorm_tensors view() {
    convnorm_tensors tensors = content->operands->view();
    tensors.x = x.data();
    if (tensors.residual != nullptr) tensors.residual = residual.data();
    tensors.packed_weight = packed.data();
    tensors.y = y.data();
    return tensors;
  }

  std::string fault(const GuardedBuffer& workspace) const {
    const std::string guards = guard_fault(y.guards_intact(), workspace.guards_intact(), packed.guards_intact());
    if (!guards.empty()) return guards;
    if (!std::ranges::equal(y.bytes(), content->expected.data)) return "gave another result than when it was checked";
    if (!std::ranges::equal(x.bytes(), content->operands->tensors.at("x").data)) return "changed its input x";
    return "";
  }

  const Content* content = nullptr;
  double pack_seconds = 0;
  GuardedBuffer x, residual, packed, y;

 private:
  void copy(const char* name, GuardedBuffer& into) const {
    const auto found = content->operands->tensors.find(name);
    if (found != content->operands->tensors.end() && into.size() > 0) {
      std::memcpy(into.data(), found->second.data.data(), into.size());
    }
  }
};

size_t set_bytes(const Subject& subject, const Content& content) {
  return input_bytes(*content.operands, "x") + input_bytes(*content.operands, "residual") + subject.packed_size +
         content.expected.data.size();
}

size_t free_memory() {
  const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) : 0;
}

size_t count_of_sets(size_t bytes) {
  const size_t wanted = 2 * last_level_cache_bytes() / std::max<size_t>(bytes, 1) + 1;
  const size_t affordable = free_memory() / 4 / std::max<size_t>(bytes, 1);
  return std::clamp<size_t>(wanted, 1, std::clamp<size_t>(affordable, 1, kMostSets));
}

}  // namespace

double quantile_of(std::vector<double> samples, double share) {
  std::ranges::sort(samples);
  const double at = share * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (at - static_cast<double>(below)) * (samples[above] - samples[below]);
}

size_t last_level_cache_bytes() {
  // sysconf() may add up the caches of a whole socket, of which one core reaches a part; the kernel's files do not.
  size_t largest = 0;
  for (int index = 0;; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    size_t size = 0;
    char unit = 0;
    if (!(file >> size >> unit)) break;
    largest = std::max(largest, size << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0));
  }
  if (largest > 0) return largest;
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long size = sysconf(level); size > 0) return static_cast<size_t>(size);
  }
  return size_t{32} << 20;  // unknown: as large as common servers have
}

Cost cost_of(const Operands& operands) {
  double bytes = static_cast<double>(byte_count(element_type(operands.problem.dtype), output_shape(operands.problem)));
  for (const auto& [name, tensor] : operands.tensors) bytes += static_cast<double>(tensor.data.size());
  return {flops(operands.problem), bytes};
}

bool follows(const convnorm_problem& before, const convnorm_problem& after) {
  return before.n == after.n && convnorm_problem_output_channels(&before) == after.c &&
         convnorm_problem_output_length(&before) == after.l && before.dtype == after.dtype &&
         before.layout == after.layout;
}

double floor_seconds(const Cost& cost, const convnorm_machine& machine, bool cold) {
  const double compute = cost.flops / (machine.fma_gflops * 1e9);
  return cold ? std::max(compute, cost.bytes / (machine.bandwidth_gbps * 1e9)) : compute;
}

bool is_below_floor(double seconds, double floor) { return seconds < 0.9 * floor; }

Timing time_subject(const Subject& subject, const std::vector<Content>& contents, const TimingOptions& options) {
  Timing timing;
  Random random(options.seed, "timing");
  const size_t bytes = set_bytes(subject, contents.front());
  const size_t count = options.hot ? 1 : count_of_sets(bytes);
  timing.buffer_sets = static_cast<int64_t>(count);
  timing.cold = !options.hot && count * bytes > 2 * last_level_cache_bytes();

  GuardedBuffer workspace(subject.workspace_size);
  std::vector<BufferSet> sets;
  sets.reserve(count);
  for (size_t i = 0; i < count; ++i) sets.emplace_back(subject, contents.front());
  timing.pack = sets.back().pack_seconds;

  sets.front().load(contents.front());
  const Clock::time_point warm_up_start = Clock::now();
  do {
    subject.execute(sets.front().view(), workspace.data());
  } while (seconds_since(warm_up_start) < 0.1 * options.min_seconds);

  std::vector<double> samples;
  double timed = 0;
  const auto enough = [&] {
    return timed >= options.min_seconds && static_cast<int>(samples.size()) >= options.min_calls;
  };
  while (!enough()) {
    for (BufferSet& set : sets) {
      set.load(contents[static_cast<size_t>(random.integer(0, static_cast<int64_t>(contents.size()) - 1))]);
    }
    size_t used = 0;
    for (; used < sets.size() && !enough(); ++used) {
      const convnorm_tensors tensors = sets[used].view();
      // The check of the last call has swept the caches: hot means as the operator itself leaves them.
      if (options.hot) {
        subject.execute(tensors, workspace.data());
        sets[used].y.poison();
      }
      const Clock::time_point start = Clock::now();
      subject.execute(tensors, workspace.data());
      samples.push_back(seconds_since(start));
      timed += samples.back();
    }
    for (size_t i = 0; i < used && timing.fault.empty(); ++i) {
      const std::string fault = sets[i].fault(workspace);
      if (!fault.empty()) timing.fault = fmt::format("timed call {}: {}", samples.size() - used + i + 1, fault);
    }
    if (!timing.fault.empty()) break;
    options.progress(std::min(timed / options.min_seconds,
                              static_cast<double>(samples.size()) / static_cast<double>(options.min_calls)));
  }

  timing.calls = static_cast<int64_t>(samples.size());
  timing.median = quantile_of(samples, 0.5);
  timing.spread = quantile_of(samples, 0.75) - quantile_of(samples, 0.25);
  return timing;
}

}  // namespace convnorm::cli
