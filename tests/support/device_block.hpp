// GPU memory with a band of NaN bytes on each side, for runs of the suite on a GPU. In a build without CUDA,
// device_block_absent.cpp stands behind these names.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace convnorm::test {

class DeviceBlock {
 public:
  // On the current device. Contents from the host. The first byte lies `misalignment` bytes past a multiple of 256.
  DeviceBlock(const void* host, size_t bytes, size_t misalignment = 0);
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  void copy_to(void* host) const;  // waits for the stream that the block was made in
  bool bands_intact() const;

 private:
  CUstream_st* stream_;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_;
};

// Of the calling thread and the current device: a stream that does not wait for others.
void* thread_stream();

}  // namespace convnorm::test
