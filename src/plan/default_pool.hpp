// The threads of a call that brings no pool of its own.
#pragma once

#include <cstdint>

#include "convnorm/convnorm.h"

namespace convnorm {

int default_threads();

// A convnorm_parallel_for. `context` points to the int that limits the number of threads.
void default_parallel_for(void* context, int32_t count, void (*body)(void* argument, int32_t index), void* argument);

}  // namespace convnorm
