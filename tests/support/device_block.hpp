// GPU memory with a band of NaN bytes on each side, for runs of the suite on a GPU. In a build without CUDA,
// device_block_absent.cpp stands behind these names.
#pragma once

#include <cstddef>

namespace convnorm::test {

class DeviceBlock {
 public:
  // Contents from the host. The first byte lies `misalignment` bytes past a multiple of 256.
  DeviceBlock(const void* host, size_t bytes, size_t misalignment = 0);
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  void copy_to(void* host) const;  // waits for the thread's stream
  bool bands_intact() const;

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_;
};

// Of the calling thread: a stream that does not wait for others.
void* thread_stream();

}  // namespace convnorm::test
