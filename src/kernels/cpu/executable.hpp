// What the strategies share: packing by blocks of rows, the workers' scratch, the account of bytes.
#pragma once

#include <memory>
#include <optional>

#include "kernels/cpu/convolve.hpp"
#include "kernels/cpu/run.hpp"

namespace convnorm::cpu {

// What a workspace may take beyond the bytes of y.
inline constexpr int64_t kWorkspaceAllowance = int64_t{64} << 20;

class CpuExecutable : public Executable {
 public:
  CpuExecutable(const PlanRequest& request, const Kernels& kernels, int64_t block_rows)
      : g_(request.problem, kernels, block_rows), threads_(request.threads) {}

  size_t packed_bytes() const override { return static_cast<size_t>(g_.packed_floats()) * sizeof(float); }
  std::string packing() const override { return std::to_string(g_.block_rows); }
  // Lowers the number of workers until the workspace is at most y and kWorkspaceAllowance, or says that none fits.
  std::optional<Refusal> fit_workspace();
  void pack(const void* weight, void* packed, const Launch& launch) const override;
  size_t workspace_bytes() const override {
    Arena arena;
    layout(arena, nullptr);
    return arena.used();
  }
  void run(const convnorm_tensors& tensors, const void* packed, void* workspace, const Launch& launch) const override;
  std::vector<std::pair<std::string, std::string>> config() const override;
  Accounting accounting() const override;

 protected:
  // The pieces of the workspace.
  struct Memory {
    explicit Memory(Parameters p) : parameters(p) {}
    Parameters parameters;
    GroupNorm* norms = nullptr;  // (samples held, G)
    char* workers = nullptr;
    int64_t worker_bytes = 0;
    Moments* partial = nullptr;  // (samples held, C_out, blocks of kStatisticsBlock), where tasks share groups
    float* store = nullptr;      // z, or packed inputs, where a strategy keeps them between phases

    float* worker(int w) const { return reinterpret_cast<float*>(workers + w * worker_bytes); }
  };

  Memory layout(Arena& arena, const convnorm_tensors* tensors) const;

  virtual int64_t worker_floats() const = 0;
  // Samples whose norms and partial moments are kept at the same time.
  virtual int64_t samples_held() const = 0;
  virtual bool merges_across_tasks() const { return false; }
  virtual int64_t store_floats() const { return 0; }
  virtual void execute(const Run& run, const Memory& memory, const void* packed, const Parallel& parallel) const = 0;

  // Not a multiple of a page: the workers then use other cache sets.
  int64_t worker_bytes() const { return round_up(worker_floats() * 4, 4096) + 256; }
  int64_t partial_blocks() const { return ceil_div(g_.sizes.l_out, kStatisticsBlock); }

  Geometry g_;
  int threads_;
};

// Rows of a block and its partner, in the order in which a worker holds them.
struct HeldRows {
  const Geometry& g;
  Block block;

  int64_t count() const { return g.halves * block.rows; }
  // First output channel of half h.
  int64_t channel(int64_t h) const { return block.first + h * g.half; }
  int64_t row_of(int64_t o) const { return o < g.half ? o - block.first : o - g.half - block.first + block.rows; }
};

// The executable, or why its workspace would be too large.
template <class E>
Answer accept_if_it_fits(std::unique_ptr<E> executable) {
  if (auto refusal = executable->fit_workspace()) return *std::move(refusal);
  return executable;
}

// Convolution and pre op of a block, both halves, outputs [begin, end) of sample n.
void convolve_block(Convolver& conv, const Run& run, int64_t n, const HeldRows& rows, int64_t begin, int64_t end,
                    float* z, int64_t z_row);

}  // namespace convnorm::cpu
