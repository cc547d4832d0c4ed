#include "support/device_block.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
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

}  // namespace

void* thread_stream() {
  thread_local std::map<int, cudaStream_t> streams;
  int device = 0;
  require(cudaGetDevice(&device));
  cudaStream_t& own = streams[device];
  if (own == nullptr) require(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
  return own;
}

DeviceBlock::DeviceBlock(const void* host, size_t bytes, size_t misalignment)
    : stream_(static_cast<cudaStream_t>(thread_stream())), bytes_(bytes) {
  void* memory = nullptr;
  require(cudaMallocAsync(&memory, bytes + 2 * kBand, stream_));
  base_ = static_cast<std::byte*>(memory);
  data_ = base_ + kAlignment + misalignment % kAlignment;
  require(cudaMemsetAsync(base_, static_cast<int>(Guarded::kPoison), bytes + 2 * kBand, stream_));
  if (bytes > 0) require(cudaMemcpyAsync(data_, host, bytes, cudaMemcpyHostToDevice, stream_));
  require(cudaStreamSynchronize(stream_));
}

DeviceBlock::~DeviceBlock() { cudaFreeAsync(base_, stream_); }

void DeviceBlock::copy_to(void* host) const {
  require(cudaMemcpyAsync(host, data_, bytes_, cudaMemcpyDeviceToHost, stream_));
  require(cudaStreamSynchronize(stream_));
}

bool DeviceBlock::bands_intact() const {
  std::vector<std::byte> all(bytes_ + 2 * kBand);
  require(cudaMemcpyAsync(all.data(), base_, all.size(), cudaMemcpyDeviceToHost, stream_));
  require(cudaStreamSynchronize(stream_));
  const auto poison = [](std::byte each) { return each == Guarded::kPoison; };
  return std::all_of(all.begin(), all.begin() + (data_ - base_), poison) &&
         std::all_of(all.begin() + (data_ - base_) + static_cast<std::ptrdiff_t>(bytes_), all.end(), poison);
}

}  // namespace convnorm::test
