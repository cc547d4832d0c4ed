// Memory in which a stray write or an unwritten element shows.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace convnorm::cli {

// Bytes between two guard bands, aligned to a cache line. Contents and guards start as 0xFF, which is NaN in every
// floating type: an element that was never written cannot pass as a result.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size)
      : size_(size),
        total_((size + 2 * kGuard + kLine - 1) / kLine * kLine),
        memory_(std::aligned_alloc(kLine, total_)) {
    if (!memory_) throw std::bad_alloc();
    std::memset(memory_.get(), kPoison, total_);
  }

  std::byte* data() { return begin() + kGuard; }
  const std::byte* data() const { return begin() + kGuard; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data(), size_}; }

  void poison() { std::memset(data(), kPoison, size_); }

  bool guards_intact() const { return all_poison(begin(), data()) && all_poison(data() + size_, begin() + total_); }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kPoison = 0xFF;

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::byte* begin() const { return static_cast<std::byte*>(memory_.get()); }
  static bool all_poison(const std::byte* from, const std::byte* to) {
    for (; from != to; ++from) {
      if (*from != std::byte{kPoison}) return false;
    }
    return true;
  }

  size_t size_;
  size_t total_;
  std::unique_ptr<void, Free> memory_;
};

}  // namespace convnorm::cli
