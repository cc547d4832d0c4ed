#include "bindings/boundary.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace convnorm {

namespace {

// A fixed array: an out-of-memory failure must be told without memory.
thread_local std::array<char, 1024> error_text{};

}  // namespace

const char* last_error() { return error_text.data(); }

convnorm_status report(convnorm_status status, std::string_view text) {
  const size_t size = std::min(text.size(), error_text.size() - 1);
  std::memcpy(error_text.data(), text.data(), size);
  error_text[size] = '\0';
  return status;
}

void copy_text(std::string_view text, char* buffer, size_t capacity, size_t* needed) {
  const size_t size = text.size() + 1;
  if (needed != nullptr) *needed = size;
  if (buffer == nullptr && needed != nullptr) return;
  if (buffer == nullptr) fail(CONVNORM_INVALID_ARGUMENT, "buffer and needed are both null; pass at least one of them");
  if (capacity < size) {
    fail(CONVNORM_BUFFER_TOO_SMALL, "buffer has {} bytes, but the text takes {} with its final zero", capacity, size);
  }
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
}

}  // namespace convnorm
