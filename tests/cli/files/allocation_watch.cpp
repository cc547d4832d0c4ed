#include "tests/cli/files/allocation_watch.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> largest = 0;
}

void* operator new(size_t size) {
  largest = std::max(largest.load(), size);
  if (void* block = std::malloc(std::max(size, size_t{1}))) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace convnorm::cli::testing {

void forget_allocations() { largest = 0; }
size_t largest_allocation() { return largest; }

}  // namespace convnorm::cli::testing
