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

inline DeviceLimits a100() {
  return {.ordinal = 0,
          .major = 8,
          .minor = 0,
          .sm_count = 108,
          .shared_per_block_optin = 163 << 10,
          .shared_per_sm = 164 << 10,
          .registers_per_sm = 65536,
          .l2_bytes = 40 << 20,
          .clock_ghz = 1.41,
          .bandwidth_gbps = 1555,
          .name = "NVIDIA A100"};
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

inline DeviceLimits rtx_4090() {
  return {.ordinal = 0,
          .major = 8,
          .minor = 9,
          .sm_count = 128,
          .shared_per_block_optin = 99 << 10,
          .shared_per_sm = 100 << 10,
          .registers_per_sm = 65536,
          .l2_bytes = 72 << 20,
          .clock_ghz = 2.52,
          .bandwidth_gbps = 1008,
          .name = "NVIDIA GeForce RTX 4090"};
}

inline DeviceLimits rtx_5090() {
  return {.ordinal = 0,
          .major = 12,
          .minor = 0,
          .sm_count = 170,
          .shared_per_block_optin = 99 << 10,
          .shared_per_sm = 100 << 10,
          .registers_per_sm = 65536,
          .l2_bytes = 96 << 20,
          .clock_ghz = 2.41,
          .bandwidth_gbps = 1792,
          .name = "NVIDIA GeForce RTX 5090"};
}

inline DeviceLimits t4() {
  return {.ordinal = 0,
          .major = 7,
          .minor = 5,
          .sm_count = 40,
          .shared_per_block_optin = 64 << 10,
          .shared_per_sm = 64 << 10,
          .registers_per_sm = 65536,
          .l2_bytes = 4 << 20,
          .clock_ghz = 1.59,
          .bandwidth_gbps = 320,
          .name = "Tesla T4"};
}

}  // namespace convnorm::cuda::test
