// 16 bytes that are written and read as one: whoever sees one half sees the other.
#pragma once

#include <cstdint>

namespace convnorm::cuda::ptx {

struct alignas(16) Word {
  uint64_t tag;
  uint64_t payload;
};

}  // namespace convnorm::cuda::ptx
