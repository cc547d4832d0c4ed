// Sizes of this machine's caches.
#pragma once

#include <cstdint>

namespace convnorm::cpu {

// Bytes of the cache of level 2 or 3 that a core reaches, or a modest guess.
int64_t cache_bytes(int level);

}  // namespace convnorm::cpu
