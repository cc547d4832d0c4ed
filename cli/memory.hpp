// Whether what a verb is about to allocate fits, asked before the first tensor is.
#pragma once

#include "cli/library.hpp"

namespace convnorm::cli {

// Bytes, as lower bounds: what the reference and the verb itself take besides is not in them.
struct MemoryNeed {
  double host = 0;
  double device = 0;
};

// Of calls of a plan with `contents` sets of tensors on the host, of which one at a time is where the plan computes.
MemoryNeed memory_need(const Plan& plan, int contents = 1);

// Throws BadInput with what is needed and what there is, of the GPU or of the host.
void require_memory(const MemoryNeed& need);

// What this process may still have: of the machine, of its container, of its own limit. Infinite where nothing tells.
double host_memory_bytes();

}  // namespace convnorm::cli
