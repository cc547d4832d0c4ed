// A test of one instruction set's table of kernels; each case runs on every set of this machine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/targets.hpp"
#include "support/guarded.hpp"

namespace convnorm::test {

class KernelTest : public testing::TestWithParam<const char*> {
 protected:
  const cpu::Kernels& kernels() const { return *cpu::find_kernels(GetParam()); }
};

#define CONVNORM_INSTANTIATE_KERNEL_TEST(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, testing::ValuesIn(cpu::available_targets()), \
                           [](const auto& info) { return std::string(info.param); })

// Floats in guarded memory, poisoned, one element past an aligned address.
class Row {
 public:
  explicit Row(int64_t count) : memory_(static_cast<size_t>(count) * sizeof(float), sizeof(float)) {}
  explicit Row(const std::vector<float>& values) : Row(static_cast<int64_t>(values.size())) {
    if (!values.empty()) std::memcpy(memory_.data(), values.data(), memory_.size());
  }
  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  std::vector<float> values() { return {data(), data() + memory_.size() / sizeof(float)}; }
  bool bands_intact() { return memory_.bands_intact(); }

 private:
  Guarded memory_;
};

}  // namespace convnorm::test
