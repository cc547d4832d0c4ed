#include "tests/cli/files/allocation_watch.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> largest = 0;
}

// Both forms are replaced, since a sanitizer brings its own of whichever is left.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  largest = std::max(largest.load(), size);
  return std::malloc(std::max(size, size_t{1}));
}
void* operator new(size_t size) {
  if (void* block = operator new(size, std::nothrow)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace convnorm::cli::testing {

void forget_allocations() { largest = 0; }
size_t largest_allocation() { return largest; }

}  // namespace convnorm::cli::testing
