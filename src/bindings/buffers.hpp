// The caller's buffers are aligned as malloc does, the kernels' to a cache line, on GPUs to 256 bytes: the difference
// is made up here, once. A packed weight also carries a header, so that one packed for another plan is recognised: on
// CPUs it is written and read here; on GPUs it is a part of what the kernels pack, and they read it.
#pragma once

#include <cstddef>

#include "plan/plan.hpp"

namespace convnorm {

// Bytes that the caller must provide.
size_t packed_buffer_bytes(const convnorm_plan& plan);
size_t workspace_buffer_bytes(const convnorm_plan& plan);

// Throws Failure if `buffer` is null or smaller than `needed`. `name` is how the message calls it.
void check_buffer(const char* name, const void* buffer, size_t size, size_t needed);

// Aligned memory inside the caller's workspace.
void* usable_workspace(const convnorm_plan& plan, void* workspace);

// Writes the header; returns where the executable packs to.
void* begin_packed(const convnorm_plan& plan, void* packed);

// Reads the header; returns where the executable has packed to, or throws Failure(PACKED_MISMATCH).
const void* open_packed(const convnorm_plan& plan, const void* packed);

}  // namespace convnorm
