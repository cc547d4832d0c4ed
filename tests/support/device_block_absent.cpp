#include <stdexcept>

#include "support/device_block.hpp"

namespace convnorm::test {

DeviceBlock::DeviceBlock(const void*, size_t bytes, size_t) : bytes_(bytes) {
  throw std::runtime_error("this build has no CUDA backend");
}
DeviceBlock::~DeviceBlock() = default;
void DeviceBlock::copy_to(void*) const {}
bool DeviceBlock::bands_intact() const { return false; }

void* thread_stream() { return nullptr; }

}  // namespace convnorm::test
