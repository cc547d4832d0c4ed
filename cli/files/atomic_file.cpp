#include "cli/files/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "cli/files/tensor.hpp"

namespace convnorm::cli {
namespace {

namespace fs = std::filesystem;

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// The number of a descriptor of this process when the path is its entry in /proc, where /dev/stdout and /dev/fd lead.
// Opening such an entry again would start at offset 0 and overwrite what the shell has put before, and fails on
// sockets.
std::optional<int> own_descriptor(const fs::path& path) {
  std::error_code error;
  const fs::path own = fs::canonical("/proc/self/fd", error);
  if (error || fs::canonical(directory_of(path), error) != own || error) return std::nullopt;
  const std::string name = path.filename().string();
  int number = 0;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (fault != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : name_(path), destination_(path) {
  constexpr int kMaxLinks = 40;  // as many as Linux follows
  struct stat status {};
  bool exists = false;
  if (!path.has_filename()) fail("be written", EISDIR);  // empty, or ends in a slash
  for (int links = 0;; ++links) {
    if (const auto descriptor = own_descriptor(destination_)) {
      descriptor_ = ::fcntl(*descriptor, F_DUPFD_CLOEXEC, 0);
      if (descriptor_ < 0) fail("be written", errno);
      return;
    }
    exists = ::lstat(destination_.c_str(), &status) == 0;
    if (!exists && errno != ENOENT) fail("be written", errno);
    if (!exists || !S_ISLNK(status.st_mode)) break;
    if (links == kMaxLinks) fail("be written", ELOOP);
    std::error_code error;
    const fs::path target = fs::read_symlink(destination_, error);
    if (error) fail("be read as a link", error.value());
    destination_ = directory_of(destination_) / target;
  }

  if (!exists && destination_ != path) {
    throw FileError(fmt::format("{}: links to {}, which does not exist; remove the link or create its target",
                                name_.string(), destination_.string()));
  }
  if (exists && S_ISDIR(status.st_mode)) fail("be written", EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    descriptor_ = ::open(destination_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) fail("be opened for writing", errno);
    return;
  }
  if (exists && ::access(destination_.c_str(), W_OK) != 0) fail("be written", errno);

  create_temporary();
  if (exists) {
    // The owner may be kept only by root, and changing it clears the set-id bits, hence first and without a check.
    if (::fchown(descriptor_, status.st_uid, status.st_gid) != 0) errno = 0;
    if (::fchmod(descriptor_, status.st_mode & 07777) != 0) {
      const int error = errno;
      abandon();
      fail("keep its permissions", error);
    }
  }
}

AtomicFile::~AtomicFile() { abandon(); }

void AtomicFile::create_temporary() {
  constexpr int kAttempts = 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t suffix = 0;
    if (::getrandom(&suffix, sizeof suffix, 0) != sizeof suffix) fail("get a temporary name", errno);
    // Not built from the name of the destination, which may already be as long as a name can be.
    fs::path candidate = directory_of(destination_) / fmt::format(".convnorm-{:016x}.tmp", suffix);
    descriptor_ = ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) {
      temporary_ = std::move(candidate);
      return;
    }
    if (errno != EEXIST) break;
  }
  fail("be created in its directory", errno);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("be written", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  const bool direct = temporary_.empty();
  if (!direct && ::fsync(descriptor_) != 0) fail("be stored", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("be stored", errno);
  if (direct) return;
  if (::rename(temporary_.c_str(), destination_.c_str()) != 0) fail("be given its name", errno);
  temporary_.clear();

  // The rename outlives a power cut only once the directory is on disk; some file systems cannot sync one, and the
  // content is complete either way.
  const int directory = ::open(directory_of(destination_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

void AtomicFile::abandon() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(std::string_view action, int error) const {
  throw FileError(fmt::format("{}: cannot {} ({}); free space or choose another path", name_.string(), action,
                              std::strerror(error)));
}

}  // namespace convnorm::cli
