#include "cli/memory.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "cli/device.hpp"
#include "cli/failure.hpp"
#include "cli/tensors.hpp"
#include "cli/units.hpp"

namespace convnorm::cli {
namespace {

// In double: the sizes of a problem that fits nowhere need not fit an integer.
double bytes_of(ElementType type, const std::vector<int64_t>& shape) {
  double bytes = static_cast<double>(element_size(type));
  for (const int64_t extent : shape) bytes *= static_cast<double>(extent);
  return bytes;
}

double input_bytes(const convnorm_problem& problem) {
  double bytes = 0;
  for (const WantedTensor& wanted : wanted_tensors(problem)) {
    const ElementType type = wanted.kind == Kind::data    ? element_type(problem.dtype)
                             : wanted.kind == Kind::index ? ElementType::i64
                                                          : ElementType::f32;
    bytes += bytes_of(type, wanted.shape);
  }
  return bytes;
}

// Available and swap. What the page cache holds is available.
double machine_bytes() {
  std::ifstream file("/proc/meminfo");
  double kibibytes = 0;
  bool known = false;
  for (std::string key, rest; file >> key && std::getline(file, rest);) {
    if (key != "MemAvailable:" && key != "SwapFree:") continue;
    kibibytes += std::atof(rest.c_str());
    known = known || key == "MemAvailable:";
  }
  return known ? 1024 * kibibytes : std::numeric_limits<double>::infinity();
}

// The whole limit: what is in use may be cache that gives way.
double container_bytes() {
  double least = std::numeric_limits<double>::infinity();
  for (const char* name : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    double limit = 0;
    if (std::ifstream(name) >> limit && limit > 0) least = std::min(least, limit);  // "max" is no number
  }
  return least;
}

double own_limit_bytes() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? static_cast<double>(limit.rlim_cur) : std::numeric_limits<double>::infinity();
}

}  // namespace

MemoryNeed memory_need(const Plan& plan, int contents) {
  const convnorm_problem& problem = plan.problem();
  const double tensors = input_bytes(problem) + bytes_of(element_type(problem.dtype), output_shape(problem));
  const double computing =
      tensors + static_cast<double>(plan.packed_size()) + static_cast<double>(plan.workspace_size());
  return plan.on_gpu() ? MemoryNeed{contents * tensors, computing} : MemoryNeed{contents * tensors + computing, 0};
}

double host_memory_bytes() { return std::min({machine_bytes(), container_bytes(), own_limit_bytes()}); }

void require_memory(const MemoryNeed& need) {
  const auto require = [](double needed, double there, const char* whose) {
    if (needed <= there) return;
    throw BadInput(
        fmt::format("at least {} of the {} memory are needed, and {} are left; make n, l or the channels smaller",
                    with_unit(needed, "B"), whose, with_unit(there, "B")));
  };
  if (need.device > 0) require(need.device, static_cast<double>(device_memory().free_bytes), "GPU's");
  require(need.host, host_memory_bytes(), "host's");
}

}  // namespace convnorm::cli
