#include "kernels/cuda/device.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "descriptor/text.hpp"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda {

std::vector<BuiltArchitecture> parse_architectures(const std::string& list) {
  std::vector<BuiltArchitecture> built;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find_first_of(";,"));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    int number = 0;
    std::from_chars(item.data(), item.data() + item.size(), number);
    if (number == 0) continue;
    if (!item.ends_with("-virtual")) built.push_back({number / 10, number % 10, false});
    if (!item.ends_with("-real")) built.push_back({number / 10, number % 10, true});
  }
  return built;
}

std::span<const BuiltArchitecture> built_architectures() {
  static const std::vector<BuiltArchitecture> built = parse_architectures(CONVNORM_CUDA_ARCHITECTURES);
  return built;
}

std::string architectures_text(std::span<const BuiltArchitecture> built) {
  std::vector<std::string> names;
  for (const BuiltArchitecture& each : built) {
    names.push_back(fmt::format("{}_{}{}", each.intermediate ? "compute" : "sm", each.major, each.minor));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void require_code_for(const DeviceLimits& device, std::span<const BuiltArchitecture> built) {
  if (std::ranges::any_of(built, [&](const BuiltArchitecture& each) { return each.runs_on(device); })) return;
  fail(CONVNORM_NO_DEVICE,
       "this build has no code for device {} ({}, {}): it was built for {}; rebuild with "
       "-DCONVNORM_CUDA_ARCHITECTURES={}{}, or {}",
       device.ordinal, device.name, device.architecture(), architectures_text(built), device.major, device.minor,
       kUseTheCpu);
}

namespace {

DeviceLimits ask_limits(int ordinal) {
  DeviceLimits limits;
  limits.ordinal = ordinal;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, limits.ordinal), "asking for a device's limits");
    return value;
  };
  limits.major = attribute(cudaDevAttrComputeCapabilityMajor);
  limits.minor = attribute(cudaDevAttrComputeCapabilityMinor);
  limits.sm_count = attribute(cudaDevAttrMultiProcessorCount);
  limits.shared_per_block_optin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  limits.shared_per_sm = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  limits.registers_per_sm = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
  limits.l2_bytes = attribute(cudaDevAttrL2CacheSize);
  limits.clock_ghz = attribute(cudaDevAttrClockRate) * 1e-6;
  // Two transfers a clock.
  limits.bandwidth_gbps =
      2.0 * attribute(cudaDevAttrMemoryClockRate) * 1e3 * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8 * 1e-9;
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, limits.ordinal), "asking for a device's name");
  limits.name = properties.name;
  return limits;
}

// Asked for once: a device's properties take longer than a plan.
DeviceLimits limits_of(int ordinal) {
  static std::mutex mutex;
  static std::map<int, DeviceLimits> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(ordinal);
  return found != known.end() ? found->second : known.emplace(ordinal, ask_limits(ordinal)).first->second;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

[[noreturn]] void fail_for_the_driver() {
  const std::string toolkit = toolkit_version(), driver = driver_version();
  if (driver.empty()) {
    fail(CONVNORM_NO_DEVICE, "there is no CUDA driver here (no libcuda.so.1); install NVIDIA's, or {}", kUseTheCpu);
  }
  fail(
      CONVNORM_NO_DEVICE,
      "the CUDA driver serves CUDA {}, but this build was compiled by CUDA {} and needs a driver of CUDA {}; install a "
      "newer driver, rebuild with an older nvcc (12.8 or newer), or {}",
      driver, toolkit, toolkit.substr(0, toolkit.find('.')), kUseTheCpu);
}

[[noreturn]] void fail_for_want_of_a_device() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) fail(CONVNORM_NO_DEVICE, "the CUDA driver finds no device; {}", kUseTheCpu);
  fail(
      CONVNORM_NO_DEVICE,
      "the CUDA driver finds no device, and CUDA_VISIBLE_DEVICES is {}, which hides all but those that it names; unset "
      "it, or {}",
      in_quotes(visible), kUseTheCpu);
}

}  // namespace

std::string toolkit_version() { return version_text(CUDART_VERSION); }

std::string driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess && version > 0 ? version_text(version) : "";
}

DeviceLimits current_device() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver) fail_for_the_driver();
  if (found == cudaErrorNoDevice || (found == cudaSuccess && count == 0)) fail_for_want_of_a_device();
  check(found, "looking for devices");

  int ordinal = 0;
  check(cudaGetDevice(&ordinal), "asking for the current device");
  const DeviceLimits limits = limits_of(ordinal);
  require_code_for(limits, built_architectures());
  return limits;
}

DeviceScope::DeviceScope(int ordinal) : before_(ordinal), changed_(false) {
  check(cudaGetDevice(&before_), "asking for the current device");
  if (before_ == ordinal) return;
  check(cudaSetDevice(ordinal), "making the plan's device current");
  changed_ = true;
}

DeviceScope::~DeviceScope() {
  if (changed_) cudaSetDevice(before_);
}

}  // namespace convnorm::cuda
