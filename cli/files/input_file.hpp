// Reading bytes of a file that nobody vouches for: a size that its header claims is compared with what the file holds
// before memory is taken, and a pipe, whose size is unknown, is read in blocks that grow with the bytes that came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convnorm::cli {

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Exactly `count` bytes; `what` names them in the refusal of a file that holds fewer.
  std::vector<std::byte> read(uint64_t count, std::string_view what);

  // All bytes that are left. A stream longer than `stream_limit` is refused, since it may have no end.
  std::vector<std::byte> read_to_end(uint64_t stream_limit);

  // Refuses bytes after `what`.
  void expect_end(std::string_view what);

  [[noreturn]] void fail(std::string_view reason) const;

 private:
  size_t read_some(std::byte* out, size_t count);
  std::vector<std::byte> read_up_to(uint64_t count);

  std::string name_;
  int descriptor_;
  std::optional<uint64_t> remaining_;  // empty for a pipe or a device
};

// Text of an untrusted file, in double quotes, shortened and with control characters escaped, so that a message cannot
// drive the terminal that shows it.
std::string printable(std::string_view text);

}  // namespace convnorm::cli
