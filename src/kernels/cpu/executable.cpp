#include "kernels/cpu/executable.hpp"

#include <fmt/format.h>

namespace convnorm::cpu {

void CpuExecutable::pack(const void* weight, void* packed, const Launch& launch) const {
  const int64_t blocks = g_.blocks();
  deal(launch.parallel, threads_, blocks * g_.halves, [&](int, const auto& next) {
    for (int64_t i = next(); i >= 0; i = next()) {
      Block block = g_.block(i % blocks);
      block.first += i / blocks * g_.half;
      g_.pack_block(weight, block, static_cast<float*>(packed));
    }
  });
}

CpuExecutable::Memory CpuExecutable::layout(Arena& arena, const convnorm_tensors* tensors) const {
  const Problem& p = g_.problem;
  Memory memory(Parameters(p, *g_.kernels, tensors, arena));
  if (has_norm(p)) memory.norms = arena.take<GroupNorm>(samples_held() * p.groups);
  if (merges_across_tasks()) memory.partial = arena.take<Moments>(samples_held() * p.o * partial_blocks());
  memory.store = arena.take<float>(store_floats());
  memory.worker_bytes = worker_bytes();
  memory.workers = arena.take<char>(memory.worker_bytes * threads_);
  return memory;
}

std::optional<Refusal> CpuExecutable::fit_workspace() {
  const int64_t limit = g_.sizes.y_elements * element_size(g_.problem.dtype) + kWorkspaceAllowance;
  const auto used = [&](int workers) {
    threads_ = workers;
    return static_cast<int64_t>(workspace_bytes());
  };
  const int threads = threads_;
  const int64_t least = used(1);
  if (least > limit) {
    return Refusal{fmt::format("a workspace of {} MiB would exceed y by more than {} MiB", least >> 20,
                               kWorkspaceAllowance >> 20)};
  }
  // Each further worker takes the same again.
  const int64_t each = std::max<int64_t>(1, used(2) - least);
  threads_ = static_cast<int>(std::min<int64_t>(threads, 1 + (limit - least) / each));
  return std::nullopt;
}

void CpuExecutable::run(const convnorm_tensors& tensors, const void* packed, void* workspace,
                        const Launch& launch) const {
  Arena arena(workspace);
  const Memory memory = layout(arena, &tensors);
  execute(Run{g_, tensors, memory.parameters}, memory, packed, launch.parallel);
}

std::vector<std::pair<std::string, std::string>> CpuExecutable::config() const {
  const Kernels& k = *g_.kernels;
  return {
      {"tile", std::to_string(g_.narrow ? 1 : k.wide_rows) + " channels x " + std::to_string(g_.panel) + " positions"},
      {"block", std::to_string(g_.block_rows * g_.halves) + " channels"},
      {"strip", std::to_string(g_.strip) + " positions"},
      {"chunk", std::to_string(g_.channel_chunk) + " input channels x " + std::to_string(g_.tap_chunk) + " taps"}};
}

Accounting CpuExecutable::accounting() const {
  Accounting a;
  a.flops = g_.sizes.flops;
  a.min_bytes = a.moved_bytes = compulsory_bytes(g_.problem, g_.sizes);
  a.workspace_bytes = static_cast<double>(workspace_bytes());
  return a;
}

void convolve_block(Convolver& conv, const Run& run, int64_t n, const HeldRows& rows, int64_t begin, int64_t end,
                    float* z, int64_t z_row) {
  for (int64_t h = 0; h < run.g.halves; ++h) {
    float* half = z + h * rows.block.rows * z_row;
    conv(n, run.length(n), {rows.channel(h), rows.block.rows}, begin, end, half, z_row);
    if (run.g.problem.pre.op == CONVNORM_NONE) continue;
    for (int64_t r = 0; r < rows.block.rows; ++r) run.pre(rows.channel(h) + r, half + r * z_row, end - begin);
  }
}

}  // namespace convnorm::cpu
