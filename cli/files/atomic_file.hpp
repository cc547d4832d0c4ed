// A file appears under its name complete or not at all.
//
//   AtomicFile file("y.npy");
//   file.write(bytes);
//   file.commit();  // without it, the destructor leaves what was there before
//
// Where `cp` would leave the kind of the destination alone, so does this: a symbolic link stays a link and its target
// is replaced, a link that dangles is refused, a replaced file keeps its mode and (where allowed) its owner, a file
// without write permission is refused, and a pipe, a device or an open descriptor such as /dev/stdout is written
// directly, since there is nothing to rename onto. Unlike with `cp`, other hard links of a replaced file keep the old
// content.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace convnorm::cli {

class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Makes the content durable, then visible. Nothing may be written after it.
  void commit();

 private:
  void create_temporary();
  void abandon() noexcept;
  [[noreturn]] void fail(std::string_view action, int error) const;

  std::filesystem::path name_;         // as the caller gave it, for messages
  std::filesystem::path destination_;  // with symbolic links followed
  std::filesystem::path temporary_;    // empty when the destination is written directly
  int descriptor_ = -1;
};

}  // namespace convnorm::cli
