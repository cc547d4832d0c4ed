#include "kernels/cpu/caches.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

namespace convnorm::cpu {

namespace {

// The kernel's files come first: sysconf() may add up the caches of a whole socket, of which one core reaches a part.
int64_t detect_cache_bytes(int level) {
  for (int index = 0;; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    std::ifstream level_file(folder + "/level"), size_file(folder + "/size");
    int found = 0;
    int64_t size = 0;
    char unit = 0;
    if (!(level_file >> found)) break;
    if (found == level && size_file >> size >> unit) return size << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
  }
  const long bytes = sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return bytes;
  return level == 2 ? 256 * 1024 : 8 * 1024 * 1024;
}

}  // namespace

int64_t cache_bytes(int level) {
  static const int64_t second = detect_cache_bytes(2), third = detect_cache_bytes(3);
  return level == 2 ? second : third;
}

}  // namespace convnorm::cpu
