// Timing on a GPU: calls recorded in a graph and replayed, so that the host's share of a call is left out.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/device.hpp"
#include "cli/device_operands.hpp"
#include "cli/random.hpp"
#include "cli/timing.hpp"

namespace convnorm::cli {
namespace {

constexpr size_t kFewestNodes = 32, kMostNodes = 4096;
constexpr int kFewestReplays = 15;

// Loading and comparing all tensors takes longer than a short timing itself.
int rounds_of(const TimingOptions& options) { return options.min_seconds < 0.02 ? 1 : 3; }

// The tensors of one call, packed weight included, in memory of their own.
struct Set {
  Set(const Plan& plan, const Operands& operands)
      : inputs(operands), packed(plan.packed_size()), y(output_bytes(plan.problem())) {}

  void pack(const Plan& plan, void* stream) const { plan.pack(inputs.buffer("weight").data(), packed.data(), stream); }

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
  DeviceOperands inputs;
  DeviceBuffer packed, y;
};

// A block of a chain, with tensors of its own.
struct Link {
  // `before` outlives this; null if the block reads its own x.
  Link(const ChainBlock& block, const Link* before)
      : block(block),
        before(before),
        inputs(*block.operands),
        packed(block.plan->packed_size()),
        workspace(block.plan->workspace_size()),
        careful_workspace(block.careful->workspace_size()),
        y(output_bytes(block.plan->problem())) {
    inputs.load(*block.operands);
  }

  void pack(void* stream) const { block.plan->pack(inputs.buffer("weight").data(), packed.data(), stream); }

  void execute(const Plan& plan, const DeviceBuffer& scratch, void* stream) const {
    convnorm_tensors tensors = inputs.view();
    if (before != nullptr) tensors.x = before->y.data();
    tensors.packed_weight = packed.data();
    tensors.y = y.data();
    plan.execute(tensors, scratch.data(), stream);
  }

  std::vector<std::byte> result() const {
    std::vector<std::byte> bytes(y.size());
    y.download(bytes.data());
    return bytes;
  }

  const ChainBlock& block;
  const Link* before;
  DeviceOperands inputs;
  DeviceBuffer packed, workspace, careful_workspace, y;
  std::vector<std::byte> expected;
};

size_t count_of_sets(size_t bytes, const DeviceMemory& memory) {
  const size_t wanted = 2 * memory.l2_bytes / bytes + 1;
  const size_t affordable = memory.free_bytes / 2 / bytes;
  return std::clamp<size_t>(wanted, 1, std::clamp<size_t>(affordable, 1, kMostNodes));
}

// Replays `work`, which makes `calls_of_replay` calls, for options.min_seconds in rounds, and completes the timing: of
// one of `units` equal parts of a replay. prepare() comes before each round, fault() after it.
template <class Prepare, class Fault>
void time_replays(const Recording& work, size_t calls_of_replay, size_t units, const TimingOptions& options,
                  Timing& timing, const Prepare& prepare, const Fault& fault) {
  const int rounds = rounds_of(options);
  std::vector<double> samples;
  for (int round = 0; round < rounds && timing.fault.empty(); ++round) {
    prepare();
    work.replay();  // warms up: clocks, and the cache as the calls leave it
    double timed = 0;
    for (int replays = 0; timed < options.min_seconds / rounds || replays < kFewestReplays / rounds; ++replays) {
      const double seconds = work.replay();
      timed += seconds;
      samples.push_back(seconds / static_cast<double>(units));
    }
    timing.clock_mhz = clock_mhz();
    timing.fault = fault();
    options.progress((round + 1.0) / rounds);
  }
  timing.calls = static_cast<int64_t>(samples.size() * calls_of_replay);
  timing.median = quantile_of(samples, 0.5);
  timing.spread = quantile_of(samples, 0.75) - quantile_of(samples, 0.25);
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
  const Recording packing([&](void* stream) {
    for (const auto& set : sets) set->pack(*plan, stream);
  });
  timing.pack = packing.replay() / static_cast<double>(count);

  // Whole turns through the sets, so that each replay continues the rotation.
  const size_t nodes = (kFewestNodes + count - 1) / count * count;
  const Recording calls([&](void* stream) {
    for (size_t i = 0; i < nodes; ++i) plan->execute(sets[i % count]->view(), workspace.data(), stream);
  });

  time_replays(
      calls, nodes, nodes, options, timing,
      [&] {
        for (const auto& set : sets) {
          set->load(contents[static_cast<size_t>(random.integer(0, static_cast<int64_t>(contents.size()) - 1))]);
        }
      },
      [&]() -> std::string {
        for (const auto& set : sets) {
          if (std::string fault = set->fault(workspace); !fault.empty()) return fault;
        }
        return "";
      });
  return timing;
}

Timing time_chain_on_device(const std::vector<ChainBlock>& blocks, const TimingOptions& options) {
  Timing timing;
  size_t bytes = 0;
  std::vector<std::unique_ptr<Link>> links;
  for (const ChainBlock& block : blocks) {
    const bool reads_before = !links.empty() && follows(links.back()->block.plan->problem(), block.plan->problem());
    links.push_back(std::make_unique<Link>(block, reads_before ? links.back().get() : nullptr));
    bytes += block.plan->packed_size();
  }
  timing.buffer_sets = 1;
  timing.cold = bytes > 2 * device_memory().l2_bytes;
  timing.pack = Recording([&](void* stream) {
                  for (const auto& link : links) link->pack(stream);
                }).replay();
  for (const auto& link : links) {
    Recording([&](void* stream) { link->execute(*link->block.careful, link->careful_workspace, stream); }).replay();
    link->expected = link->result();
  }

  const Recording chain([&](void* stream) {
    for (const auto& link : links) link->execute(*link->block.plan, link->workspace, stream);
  });
  time_replays(
      chain, links.size(), 1, options, timing,
      [&] {
        for (const auto& link : links) link->y.poison();
      },
      [&]() -> std::string {
        for (size_t i = 0; i < links.size(); ++i) {
          if (links[i]->result() != links[i]->expected)
            return fmt::format("block {} gives another result in the chain than by itself", i + 1);
        }
        return "";
      });
  return timing;
}

}  // namespace convnorm::cli
