// What the rest of the library knows of the CUDA backend. In a build without it, absent.cpp stands behind these names.
#pragma once

#include <span>
#include <string>

#include "kernels/cuda/device.hpp"

namespace convnorm {
struct Implementation;
}

namespace convnorm::cuda {

// In the order in which a plan asks them.
std::span<const Implementation> implementations();

// For info: the device, or why there is none.
struct Presence {
  bool compiled;
  bool usable;
  std::string text;           // "NVIDIA H200 (sm_90, 132 SMs)", or a reason
  std::string architectures;  // that the code was built for; empty if it was not
  std::string toolkit;        // "13.0": CUDA that compiled it
  std::string driver;         // newest CUDA that the driver serves; empty if there is no driver
};
Presence presence();

}  // namespace convnorm::cuda
