#include "support/device_block.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/guarded.hpp"

namespace convnorm::test {

namespace {

constexpr size_t kAlignment = 256, kBand = 256 + kAlignment;

void require(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(result));
}

cudaStream_t stream() { return static_cast<cudaStream_t>(thread_stream()); }

}  // namespace

void* thread_stream() {
  thread_local const cudaStream_t own = [] {
    cudaStream_t made = nullptr;
    require(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return own;
}

DeviceBlock::DeviceBlock(const void* host, size_t bytes, size_t misalignment) : bytes_(bytes) {
  void* memory = nullptr;
  require(cudaMallocAsync(&memory, bytes + 2 * kBand, stream()));
  base_ = static_cast<std::byte*>(memory);
  data_ = base_ + kAlignment + misalignment % kAlignment;
  require(cudaMemsetAsync(base_, static_cast<int>(Guarded::kPoison), bytes + 2 * kBand, stream()));
  if (bytes > 0) require(cudaMemcpyAsync(data_, host, bytes, cudaMemcpyHostToDevice, stream()));
  require(cudaStreamSynchronize(stream()));
}

DeviceBlock::~DeviceBlock() { cudaFreeAsync(base_, stream()); }

void DeviceBlock::copy_to(void* host) const {
  require(cudaMemcpyAsync(host, data_, bytes_, cudaMemcpyDeviceToHost, stream()));
  require(cudaStreamSynchronize(stream()));
}

bool DeviceBlock::bands_intact() const {
  std::vector<std::byte> all(bytes_ + 2 * kBand);
  require(cudaMemcpyAsync(all.data(), base_, all.size(), cudaMemcpyDeviceToHost, stream()));
  require(cudaStreamSynchronize(stream()));
  const auto poison = [](std::byte each) { return each == Guarded::kPoison; };
  return std::all_of(all.begin(), all.begin() + (data_ - base_), poison) &&
         std::all_of(all.begin() + (data_ - base_) + static_cast<std::ptrdiff_t>(bytes_), all.end(), poison);
}

}  // namespace convnorm::test
