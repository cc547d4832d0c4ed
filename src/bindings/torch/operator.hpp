// The operator as PyTorch calls it, over convnorm.h. Knows no device: a Backend says what differs between them.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "convnorm/convnorm.h"

namespace convnorm_torch {

using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

// How a convolution's weight is made of a transposed one's; see phases.hpp.
struct Phases {
  int64_t stride;
  int64_t left;  // zeros before the transposed weight's first tap
  int64_t taps;  // of the convolution; taps * stride - left - K zeros follow the last one

  bool operator==(const Phases&) const = default;
};

// The arguments of torch.ops.convnorm.conv1d_group_norm, in its order; their shapes stand at its definition in cpu.cpp.
struct Inputs {
  Tensor x;
  Tensor weight;
  OptionalTensor bias;
  OptionalTensor gamma;
  OptionalTensor beta;
  std::string attributes;
  int64_t weight_id;
  OptionalTensor lengths;
  OptionalTensor pre_slope;
  OptionalTensor post_slope;
  OptionalTensor film_scale;
  OptionalTensor film_shift;
  OptionalTensor residual;
  std::optional<Phases> phases;  // given: `weight` is a transposed convolution's (C_in, C_out, K)
};

// Uninitialised bytes on the device of `like`.
__attribute__((visibility("default"))) Tensor new_bytes(const Tensor& like, size_t bytes);

struct Backend {
  convnorm_device device;
  const char* name;
  int32_t (*threads)();                             // most workers of one call, part of its plan
  convnorm_launch (*launch)(int32_t device_index);  // PyTorch's pool, or its current stream
  bool (*capturing)(const convnorm_launch&);        // whether calls are being recorded into a graph
  void (*wait)(const convnorm_launch&);             // until what was put into the stream is done
  // Uninitialised bytes on the device of `like` for longer than this call, handed on in the order of the stream.
  Tensor (*lasting_bytes)(const Tensor& like, size_t bytes, const convnorm_launch&);
  // Lets what one stream gets from here on start after all that another got so far; false where that cannot be.
  bool (*order)(void* earlier, void* later);
};

// Throws std::runtime_error with one sentence that names the argument at fault.
__attribute__((visibility("default"))) Tensor conv1d_group_norm(const Backend& backend, Inputs inputs);

// Path and instruction set of the plan for these inputs, as "path on target".
__attribute__((visibility("default"))) std::string chosen_path(const Backend& backend, Inputs inputs);

}  // namespace convnorm_torch
