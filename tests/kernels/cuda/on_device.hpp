// A problem with all that its call needs, on the current device.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "operator/bug_case.hpp"
#include "support/device_block.hpp"
#include "support/inputs.hpp"

namespace convnorm::test {

inline int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Each tensor in memory of its own. By default the first problem of the bug reports, on its planned path.
class OnDevice {
 public:
  explicit OnDevice(const std::string& line = std::string(kS1) + ",post=silu", const char* path = nullptr,
                    bool constant_weights = false)
      : in(make_inputs(line)) {
    const convnorm_plan_options options{
        .device = CONVNORM_CUDA, .threads = 0, .path = path, .target = nullptr, .constant_weights = constant_weights};
    EXPECT_EQ(convnorm_plan_create(&in.problem, &options, &plan), CONVNORM_OK) << convnorm_last_error();
    x = block(in.x), w = block(in.w), bias = block(in.bias), gamma = block(in.gamma), beta = block(in.beta);
    lengths = block(in.lengths);
    packed = room(convnorm_plan_packed_size(plan)), workspace = room(convnorm_plan_workspace_size(plan));
    y = room(in.y_bytes());
    EXPECT_EQ(pack(w->data()), CONVNORM_OK) << convnorm_last_error();
    tensors.x = x->data(), tensors.packed_weight = packed->data(), tensors.bias = bias->data();
    tensors.gamma = gamma->data(), tensors.beta = beta->data(), tensors.y = y->data();
    if (in.problem.lengths) tensors.lengths = reinterpret_cast<const int64_t*>(lengths->data());
    cudaDeviceSynchronize();
  }
  ~OnDevice() { convnorm_plan_destroy(plan); }

  convnorm_status pack(const void* weight, void* stream = nullptr) {
    const convnorm_launch launch{.parallel_for = nullptr, .parallel_context = nullptr, .stream = stream};
    return convnorm_pack_weight(plan, weight, packed->data(), packed->size(), &launch);
  }
  convnorm_status execute(void* stream = nullptr) {
    const convnorm_launch launch{.parallel_for = nullptr, .parallel_context = nullptr, .stream = stream};
    return convnorm_execute(plan, &tensors, workspace->data(), workspace->size(), &launch);
  }
  std::vector<double> result() const {
    cudaDeviceSynchronize();
    std::vector<float> values(in.y_bytes() / sizeof(float));
    y->copy_to(values.data());
    return {values.begin(), values.end()};
  }
  std::string fault() const { return compare(in, Expected(in), result(), arithmetic_of(plan)); }

  struct Case : Inputs {
    explicit Case(const Inputs& inputs) : Inputs(inputs) {}
    size_t y_bytes() const { return static_cast<size_t>(sizes.y_elements) * sizeof(float); }
  };

  Case in;
  convnorm_plan* plan = nullptr;
  std::unique_ptr<DeviceBlock> x, w, bias, gamma, beta, lengths, packed, workspace, y;
  convnorm_tensors tensors{};

 private:
  template <class T>
  static std::unique_ptr<DeviceBlock> block(const std::vector<T>& values) {
    return std::make_unique<DeviceBlock>(values.data(), values.size() * sizeof(T));
  }
  static std::unique_ptr<DeviceBlock> room(size_t bytes) {
    const std::vector<std::byte> poison(bytes, std::byte{0xff});
    return std::make_unique<DeviceBlock>(poison.data(), bytes);
  }
};

}  // namespace convnorm::test
