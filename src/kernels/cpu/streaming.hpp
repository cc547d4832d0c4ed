// The path that convolves twice; `moments` shares its second pass.
#pragma once

#include "kernels/cpu/executable.hpp"

namespace convnorm::cpu {

class Streaming : public CpuExecutable {
 public:
  using CpuExecutable::CpuExecutable;

  std::vector<std::pair<std::string, std::string>> config() const override;
  Accounting accounting() const override;

 protected:
  // Samples [begin, end); what is kept for sample n stands at n - first_held.
  struct Wave {
    int64_t first_held, begin, end;
  };

  int64_t worker_floats() const override;
  int64_t samples_held() const override;
  bool merges_across_tasks() const override { return has_norm(g_.problem); }
  void execute(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel) const override;

  // Fills memory.partial.
  virtual void measure(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel,
                       const Wave& wave) const {
    pass<true>(run, memory, packed, parallel, wave);
  }

  template <bool kStatistics>
  void pass(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel, const Wave& wave) const;

 private:
  // With one conv group all blocks of a strip share its packed inputs and form one task. With several, each block reads
  // rows of its own, and a task follows them for a while: long reads are what the hardware prefetches.
  int64_t blocks_per_task() const { return g_.problem.conv_groups == 1 ? g_.blocks() : 1; }
  int64_t strips_per_task() const { return g_.problem.conv_groups == 1 ? 1 : 16; }

  template <bool kStatistics>
  void one(const Run& run, const Memory& memory, Convolver& conv, const Finisher& finish, const Wave& wave, int64_t n,
           const HeldRows& rows, int64_t strip, float* z) const;
};

inline constexpr int64_t kStreamingRows = 48;

// Channels of a block: enough to share the packed inputs, few enough that z stays in the first cache levels.
int64_t streaming_rows(const PlanRequest& request, int64_t most);

}  // namespace convnorm::cpu
