// The largest block that operator new gave out, to catch memory taken on the word of a hostile header.
#pragma once

#include <cstddef>

namespace convnorm::cli::testing {

void forget_allocations();
size_t largest_allocation();

}  // namespace convnorm::cli::testing
