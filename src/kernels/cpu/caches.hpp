// Sizes of this machine's caches.
#pragma once

#include <cstdint>

namespace convnorm::cpu {

// Bytes of the cache of level 2 or 3 that a core reaches, or a modest guess.
int64_t cache_bytes(int level);

// A call should not count on more of a last-level cache that it shares with others.
inline constexpr int64_t kSharedCacheBytes = int64_t{32} << 20;

}  // namespace convnorm::cpu
