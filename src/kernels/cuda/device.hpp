// What planning must know of a GPU, as plain values: planner tests run without one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace convnorm::cuda {

// The way out of every refusal of a GPU, as the C interface and the command line spell it.
inline constexpr char kUseTheCpu[] = "use CONVNORM_CPU (--device cpu)";

struct DeviceLimits {
  int ordinal = 0;
  int major = 0, minor = 0;  // compute capability
  int sm_count = 0;
  int shared_per_block_optin = 0;  // bytes
  int shared_per_sm = 0;           // bytes
  int registers_per_sm = 0;
  int64_t l2_bytes = 0;
  double clock_ghz = 0;       // of the SMs, at most
  double bandwidth_gbps = 0;  // of the memory's pins; copies reach some nine tenths
  std::string name;

  // "sm_90".
  std::string architecture() const { return "sm_" + std::to_string(10 * major + minor); }

  // FLOPs of all SMs in a second by fp32 multiply-adds, or by dense 16-bit products on tensor cores; 0: not known.
  double peak_gflops(bool tensor_cores) const {
    // Of one SM in a clock, from the vendor's tables. Consumer boards may have half of what their architecture can do.
    struct Rate {
      int major, minor, fma, tensor;
    };
    constexpr Rate kRates[] = {{7, 5, 128, 1024}, {8, 0, 128, 2048},  {8, 6, 256, 1024},  {8, 9, 256, 1024},
                               {9, 0, 256, 4096}, {10, 0, 256, 8192}, {10, 3, 256, 8192}, {12, 0, 256, 1024}};
    for (const Rate& rate : kRates) {
      if (rate.major == major && rate.minor == minor)
        return (tensor_cores ? rate.tensor : rate.fma) * clock_ghz * sm_count;
    }
    return 0;
  }
};

// Machine code in this build ("sm_90"), or intermediate code that the driver compiles ("compute_120").
struct BuiltArchitecture {
  int major, minor;
  bool intermediate;

  // Machine code runs within its major version, intermediate code on everything newer.
  bool runs_on(const DeviceLimits& device) const {
    return intermediate ? major < device.major || (major == device.major && minor <= device.minor)
                        : major == device.major && minor <= device.minor;
  }
};

// Reads a list as CMake writes it, or with commas: "75-real;90-virtual", or "86" for both kinds.
std::vector<BuiltArchitecture> parse_architectures(const std::string& list);

// Of the paths for any GPU.
std::span<const BuiltArchitecture> built_architectures();
std::string architectures_text(std::span<const BuiltArchitecture> built);

// Throws Failure(NO_DEVICE) if no built code runs on the device: names both.
void require_code_for(const DeviceLimits& device, std::span<const BuiltArchitecture> built);

// "13.0": of the toolkit that this build was compiled by, and the newest that the machine's driver serves, empty
// without a driver.
std::string toolkit_version();
std::string driver_version();

// The calling thread's current device. Throws Failure(NO_DEVICE): no driver, no device, or no code for it.
DeviceLimits current_device();

// Makes a device current for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int ordinal);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_;
  bool changed_;
};

}  // namespace convnorm::cuda
