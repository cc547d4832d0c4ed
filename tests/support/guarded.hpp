// Memory with a band of NaN bytes on each side, at any alignment: a write outside is seen afterwards, a value read from
// outside turns the result into NaN, and under AddressSanitizer even an unused read ends the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace convnorm::test {

class Guarded {
 public:
  static constexpr std::byte kPoison{0xff};  // a NaN in every element type
  static constexpr size_t kBand = 256;
  static constexpr size_t kAlignment = 64;

  // Contents start as poison. The first byte lies `misalignment` bytes past a multiple of kAlignment.
  explicit Guarded(size_t bytes, size_t misalignment = 0)
      : storage_(bytes + 2 * kBand + 2 * kAlignment, kPoison), bytes_(bytes) {
    const auto start = reinterpret_cast<uintptr_t>(storage_.data()) + kBand;
    before_ = kBand + (kAlignment - start % kAlignment) % kAlignment + misalignment % kAlignment;
    guard();
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { ASAN_UNPOISON_MEMORY_REGION(storage_.data(), storage_.size()); }

  std::byte* data() { return storage_.data() + before_; }
  const std::byte* data() const { return storage_.data() + before_; }
  size_t size() const { return bytes_; }
  std::vector<std::byte> copy() const { return {data(), data() + bytes_}; }
  bool equals(const std::vector<std::byte>& other) const {
    return other.size() == bytes_ && (bytes_ == 0 || std::memcmp(other.data(), data(), bytes_) == 0);
  }

  bool bands_intact() {
    ASAN_UNPOISON_MEMORY_REGION(storage_.data(), storage_.size());
    bool intact = true;
    for (size_t i = 0; i < before_; ++i) intact &= storage_[i] == kPoison;
    for (size_t i = before_ + bytes_; i < storage_.size(); ++i) intact &= storage_[i] == kPoison;
    guard();
    return intact;
  }

 private:
  void guard() {
    ASAN_POISON_MEMORY_REGION(storage_.data(), before_);
    ASAN_POISON_MEMORY_REGION(data() + bytes_, storage_.size() - before_ - bytes_);
  }

  std::vector<std::byte> storage_;
  size_t bytes_;
  size_t before_;
};

}  // namespace convnorm::test
