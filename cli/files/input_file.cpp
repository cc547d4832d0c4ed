#include "cli/files/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

#include "cli/files/tensor.hpp"

namespace convnorm::cli {

InputFile::InputFile(const std::filesystem::path& path) : name_(path.string()) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail(fmt::format("cannot be opened ({}); check the path", std::strerror(errno)));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || S_ISDIR(status.st_mode)) {
    ::close(descriptor_);
    fail("is a directory; name a file in it");
  }
  if (S_ISREG(status.st_mode)) remaining_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::fail(std::string_view reason) const { throw FileError(fmt::format("{}: {}", name_, reason)); }

size_t InputFile::read_some(std::byte* out, size_t count) {
  ssize_t got = 0;
  do {
    got = ::read(descriptor_, out, count);
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail(fmt::format("cannot be read ({}); check the device", std::strerror(errno)));
  if (remaining_) *remaining_ -= std::min(*remaining_, static_cast<uint64_t>(got));
  return static_cast<size_t>(got);
}

std::vector<std::byte> InputFile::read_up_to(uint64_t count) {
  constexpr uint64_t kFirstBlock = 1 << 20;
  std::vector<std::byte> bytes;
  try {
    size_t filled = 0;
    while (filled < count) {
      if (filled == bytes.size()) {
        const uint64_t room = remaining_ ? *remaining_ : std::max<uint64_t>(kFirstBlock, filled);
        if (room == 0) break;
        bytes.resize(filled + std::min(count - filled, room));
      }
      const size_t got = read_some(bytes.data() + filled, bytes.size() - filled);
      if (got == 0) break;
      filled += got;
    }
    bytes.resize(filled);
  } catch (const std::bad_alloc&) {
    fail("is larger than the memory of this machine; split it");
  } catch (const std::length_error&) {
    fail("is larger than the memory of this machine; split it");
  }
  return bytes;
}

std::vector<std::byte> InputFile::read(uint64_t count, std::string_view what) {
  const auto refuse = [&](uint64_t available) {
    fail(fmt::format("{} takes {} bytes but only {} follow; the file is truncated or its header is wrong", what, count,
                     available));
  };
  if (remaining_ && *remaining_ < count) refuse(*remaining_);
  std::vector<std::byte> bytes = read_up_to(count);
  if (bytes.size() < count) refuse(bytes.size());
  return bytes;
}

std::vector<std::byte> InputFile::read_to_end(uint64_t stream_limit) {
  if (remaining_) return read_up_to(*remaining_);
  std::vector<std::byte> bytes = read_up_to(stream_limit + 1);
  if (bytes.size() > stream_limit) {
    fail(fmt::format("the stream goes on after {} bytes; store it in a file first", stream_limit));
  }
  return bytes;
}

void InputFile::expect_end(std::string_view what) {
  const std::string_view way_out = "the header is wrong or something was appended";
  if (remaining_ && *remaining_ > 0) fail(fmt::format("{} bytes follow {}; {}", *remaining_, what, way_out));
  std::byte extra;
  if (!remaining_ && read_some(&extra, 1) > 0) fail(fmt::format("more bytes follow {}; {}", what, way_out));
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string result = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F || c == '"' || c == '\\') {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  result += text.size() > kShown ? "...\"" : "\"";
  return result;
}

}  // namespace convnorm::cli
