// Timing on a GPU: calls recorded in a graph and replayed, so that the host's share of a call is left out.
#include <algorithm>
#include <memory>

#include "cli/device.hpp"
#include "cli/device_operands.hpp"
#include "cli/random.hpp"
#include "cli/timing.hpp"

namespace convnorm::cli {
namespace {

constexpr size_t kFewestNodes = 32, kMostNodes = 4096;
constexpr int kRounds = 3, kFewestReplays = 15;

// The tensors of one call, packed weight included, in memory of their own.
struct Set {
  Set(const Plan& plan, const Operands& operands)
      : inputs(operands), packed(plan.packed_size()), y(output_bytes(plan.problem())) {
    const DeviceBuffer& weight = inputs.buffer("weight");
    pack_seconds = Recording([&](void* stream) { plan.pack(weight.data(), packed.data(), stream); }).replay();
  }

  void load(const Content& from) {
    content = &from;
    inputs.load(*from.operands);
    y.poison();
  }

  convnorm_tensors view() const {
    convnorm_tensors tensors = inputs.view();
    tensors.packed_weight = packed.data();
    tensors.y = y.data();
    return tensors;
  }

  std::string fault(const DeviceBuffer& workspace) const {
    const std::string guards = guard_fault(y.guards_intact(), workspace.guards_intact(), packed.guards_intact());
    if (!guards.empty()) return guards;
    std::vector<std::byte> got(y.size());
    y.download(got.data());
    if (got != content->expected.data) return "gave another result than when it was checked";
    return inputs.changed(*content->operands);
  }

  const Content* content = nullptr;
  double pack_seconds = 0;
  DeviceOperands inputs;
  DeviceBuffer packed, y;
};

size_t count_of_sets(size_t bytes, const DeviceMemory& memory) {
  const size_t wanted = 2 * memory.l2_bytes / bytes + 1;
  const size_t affordable = memory.free_bytes / 2 / bytes;
  return std::clamp<size_t>(wanted, 1, std::clamp<size_t>(affordable, 1, kMostNodes));
}

}  // namespace

Timing time_on_device(const std::shared_ptr<const Plan>& plan, const std::vector<Content>& contents,
                      const TimingOptions& options) {
  Timing timing;
  Random random(options.seed, "timing");
  const DeviceMemory memory = device_memory();
  const Operands& operands = *contents.front().operands;
  size_t bytes = plan->packed_size() + output_bytes(plan->problem());
  for (const auto& [name, tensor] : operands.tensors) bytes += name == "weight" ? 0 : tensor.data.size();
  const size_t count = options.hot ? 1 : count_of_sets(bytes, memory);
  timing.buffer_sets = static_cast<int64_t>(count);
  timing.cold = !options.hot && count * bytes > 2 * memory.l2_bytes;

  DeviceBuffer workspace(plan->workspace_size());
  std::vector<std::unique_ptr<Set>> sets;
  for (size_t i = 0; i < count; ++i) sets.push_back(std::make_unique<Set>(*plan, operands));
  timing.pack = sets.back()->pack_seconds;

  // Whole turns through the sets, so that each replay continues the rotation.
  const size_t nodes = (kFewestNodes + count - 1) / count * count;
  const Recording calls([&](void* stream) {
    for (size_t i = 0; i < nodes; ++i) plan->execute(sets[i % count]->view(), workspace.data(), stream);
  });

  std::vector<double> samples;
  for (int round = 0; round < kRounds && timing.fault.empty(); ++round) {
    for (const auto& set : sets) {
      set->load(contents[static_cast<size_t>(random.integer(0, static_cast<int64_t>(contents.size()) - 1))]);
    }
    calls.replay();  // warms up: clocks, and the cache as the calls leave it
    double timed = 0;
    for (int replays = 0; timed < options.min_seconds / kRounds || replays < kFewestReplays / kRounds; ++replays) {
      const double seconds = calls.replay();
      timed += seconds;
      samples.push_back(seconds / static_cast<double>(nodes));
    }
    timing.clock_mhz = clock_mhz();
    for (const auto& set : sets) {
      if (timing.fault.empty()) timing.fault = set->fault(workspace);
    }
    options.progress((round + 1.0) / kRounds);
  }
  timing.calls = static_cast<int64_t>(samples.size() * nodes);
  timing.median = quantile_of(samples, 0.5);
  timing.spread = quantile_of(samples, 0.75) - quantile_of(samples, 0.25);
  return timing;
}

}  // namespace convnorm::cli
