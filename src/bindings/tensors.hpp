// What a caller hands over for one call, checked before anything is read or written.
#pragma once

#include <cstddef>

#include "descriptor/problem.hpp"
#include "plan/plan.hpp"

namespace convnorm {

// A stretch of the caller's memory under the name that a message gives it.
struct Region {
  const char* name;
  const void* begin;
  size_t bytes;
  const char* advice = "";  // ends the message of an overlap
};

// Throws Failure if the two share a byte.
void check_apart(const Region& written, const Region& other);

// The weight that is to be packed: present, aligned, apart from where it goes.
void check_weight(const Problem& problem, const void* weight, const Region& packed);

// Throws Failure(INVALID_ARGUMENT) naming the tensor: one that is needed and null, one that the problem does not have,
// one that is misaligned or overlaps what is written, a length out of range (on CPUs: those of a GPU cannot be read
// without waiting for it). Throws Failure(PACKED_MISMATCH) as open_packed does, before it looks for overlaps.
void check_tensors(const convnorm_plan& plan, const convnorm_tensors& tensors, const Region& packed,
                   const Region& workspace);

// Throws Failure(INVALID_ARGUMENT) naming memory that the plan's device cannot reach.
void check_memory(const convnorm_plan& plan, const convnorm_tensors& tensors, const Region& packed,
                  const Region& workspace);

}  // namespace convnorm
