// Memory through which the CTAs of one launch tell each other their statistics.
//
// Launches that may run at the same time must not share a slot. A call takes the slot of its device and stream, whose
// launches follow one another. A call under stream capture takes a slot that belongs to the captured graph until the
// graph and everything instantiated from it are gone: two graphs captured on one stream may be replayed side by side.
// Slots need no clearing between launches (collective/exchange.cuh). They outlive streams: a process that goes through
// thousands of streams keeps a slot for each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ptx/word.hpp"

namespace convnorm::cuda {

// At the start of a slot.
struct SyncHeader {
  uint64_t tag;       // of the last round of the launch before
  uint32_t arrivals;  // CTAs of this launch that have read `tag`; the last one moves it on and resets this
  uint32_t unused;
};

struct SyncSlot {
  SyncHeader* header;
  ptx::Word* words;
};

// Has memory ready for a stream's first call, so that it need not allocate. Call it when a plan is made, with the device
// current. Throws Failure.
void reserve_sync_slot(int device, int64_t words);

// For one launch on `stream`, of the current device. Allocates only if more streams or captured launches need slots
// than were reserved. Throws Failure.
SyncSlot sync_slot(int device, cudaStream_t stream, int64_t words);

}  // namespace convnorm::cuda
