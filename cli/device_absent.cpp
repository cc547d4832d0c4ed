#include "cli/device.hpp"
#include "cli/failure.hpp"

namespace convnorm::cli {
namespace {

[[noreturn]] void refuse() { throw BadInput("this build has no CUDA backend; use --device cpu"); }

}  // namespace

DeviceBuffer::DeviceBuffer(size_t size) : size_(size) { refuse(); }
void DeviceBuffer::upload(const void*) { refuse(); }
void DeviceBuffer::download(void*) const { refuse(); }
void DeviceBuffer::poison() { refuse(); }
bool DeviceBuffer::guards_intact() const { refuse(); }
void DeviceBuffer::Free::operator()(std::byte*) const {}

DeviceMemory device_memory() { refuse(); }
std::optional<int> clock_mhz() { refuse(); }

struct Recording::State {};
Recording::Recording(const std::function<void(void*)>&) { refuse(); }
Recording::~Recording() = default;
double Recording::replay() const { refuse(); }

}  // namespace convnorm::cli
