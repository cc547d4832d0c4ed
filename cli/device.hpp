// GPU memory and timing for the verbs. In a build without CUDA, device_absent.cpp stands behind these names.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace convnorm::cli {

// Memory of the current device between two guard bands. As in GuardedBuffer, contents and guards start as 0xFF, which
// is NaN in every floating type.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t size);

  std::byte* data() const { return memory_.get() + kGuard; }
  size_t size() const { return size_; }
  void upload(const void* from);  // size() bytes
  void download(void* to) const;  // size() bytes, after all work of the device
  void poison();
  bool guards_intact() const;

 private:
  static constexpr size_t kGuard = 512;  // keeps data() on 512 bytes

  struct Free {
    void operator()(std::byte* memory) const;
  };

  size_t size_;
  std::unique_ptr<std::byte, Free> memory_;
};

struct DeviceMemory {
  size_t free_bytes;
  size_t l2_bytes;
};
DeviceMemory device_memory();

// Of the multiprocessors, as they run now. Empty where the driver does not tell.
std::optional<int> clock_mhz();

// Work of a stream, recorded once and replayed: what the host does between launches is not timed.
class Recording {
 public:
  // `enqueue` puts the work into the stream that it is given (a cudaStream_t).
  explicit Recording(const std::function<void(void* stream)>& enqueue);
  ~Recording();

  double replay() const;  // seconds on the device

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convnorm::cli
