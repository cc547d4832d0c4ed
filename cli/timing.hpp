// Times an operator so that only doing the work makes it quick: fresh contents before every timed call, every timed
// output compared afterwards, buffers rotated through more memory than the caches hold.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/subject.hpp"
#include "cli/tensors.hpp"

namespace convnorm::cli {

// Inputs and what the operator makes of them, bit for bit.
struct Content {
  const Operands* operands;
  Tensor expected;
};

struct TimingOptions {
  double min_seconds = 0.5;  // of timed work
  int min_calls = 5;
  bool hot = false;  // one set of buffers, used again and again
  uint64_t seed = 0;
  std::function<void(double share_done)> progress = [](double) {};
};

struct Timing {
  double median = 0;  // seconds
  double spread = 0;  // interquartile range
  double pack = 0;
  int64_t calls = 0;
  int64_t buffer_sets = 0;
  bool cold = false;             // the sets together exceed twice the last-level cache
  std::optional<int> clock_mhz;  // of a GPU, right after the last call
  std::string fault;             // a call whose output was wrong, or that touched what is not its own; empty if none
};

// All contents are of one problem. Every call gets one of them, chosen at random, in buffers that held another one
// before: an answer remembered by address, or left out after the first calls, does not go through.
Timing time_subject(const Subject& subject, const std::vector<Content>& contents, const TimingOptions& options);

// The same on a GPU, by replaying a graph of calls: all buffers are the device's, and what the host does between
// launches is not timed.
Timing time_on_device(const std::shared_ptr<const Plan>& plan, const std::vector<Content>& contents,
                      const TimingOptions& options);

// A layer of a chain. Both plans are of one problem; `careful` makes no promise about weights.
struct ChainBlock {
  std::shared_ptr<const Plan> plan, careful;
  const Operands* operands;
};

// Blocks that follow one another on a GPU, as in a network: one replay runs each of them once, in order, with a weight
// of its own. A block reads what the block before it wrote where the shapes agree, else its own x. Times are of a whole
// replay; before, each block runs by itself with its careful plan, and every timed replay must give the same bits.
Timing time_chain_on_device(const std::vector<ChainBlock>& blocks, const TimingOptions& options);

// Whether `after` can read what `before` writes.
bool follows(const convnorm_problem& before, const convnorm_problem& after);

// `share` 0.5 is the median.
double quantile_of(std::vector<double> samples, double share);

// What a problem demands of a machine.
struct Cost {
  double flops;
  double bytes;  // that must cross memory once: inputs read, y written
};
Cost cost_of(const Operands& operands);

// The least time that the peaks of the machine allow. Memory is no floor for buffers that stay in the caches.
double floor_seconds(const Cost& cost, const convnorm_machine& machine, bool cold);

// A time this far below its floor says that the measurement is wrong, not that the machine is quick.
bool is_below_floor(double seconds, double floor);

size_t last_level_cache_bytes();

}  // namespace convnorm::cli
