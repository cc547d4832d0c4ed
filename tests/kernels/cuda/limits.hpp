// GPUs that no test machine need have.
#pragma once

#include "kernels/cuda/device.hpp"

namespace convnorm::cuda::test {

inline DeviceLimits h200() {
  return {.ordinal = 0,
          .major = 9,
          .minor = 0,
          .sm_count = 132,
          .shared_per_block_optin = 227 << 10,
          .shared_per_sm = 228 << 10,
          .registers_per_sm = 65536,
          .l2_bytes = 60 << 20,
          .clock_ghz = 1.98,
          .bandwidth_gbps = 4917,
          .name = "NVIDIA H200"};
}

inline DeviceLimits rtx_3090() {
  return {.ordinal = 0,
          .major = 8,
          .minor = 6,
          .sm_count = 82,
          .shared_per_block_optin = 99 << 10,
          .shared_per_sm = 100 << 10,
          .registers_per_sm = 65536,
          .l2_bytes = 6 << 20,
          .clock_ghz = 1.695,
          .bandwidth_gbps = 936,
          .name = "NVIDIA GeForce RTX 3090"};
}

}  // namespace convnorm::cuda::test
