#include "bindings/torch/phases.hpp"

namespace convnorm_torch {

namespace {

Tensor flipped_along_last(const Tensor& tensor) {
  const int64_t axis = tensor.dim() - 1;
  std::array<StableIValue, 2> stack = {
      torch::stable::detail::from(tensor),
      torch::stable::detail::from(torch::headeronly::IntHeaderOnlyArrayRef(&axis, 1)),
  };
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::flip", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

}  // namespace

std::array<int64_t, 3> shape_of_phases(const Phases& phases, const Tensor& weight) {
  return {weight.size(1) * phases.stride, weight.size(0), phases.taps};
}

Tensor arranged(const Phases& phases, const Tensor& weight) {
  const int64_t c_in = weight.size(0), c_out = weight.size(1);
  const int64_t right = phases.taps * phases.stride - phases.left - weight.size(2);
  Tensor taps = torch::stable::pad(weight, {phases.left, right});
  taps = torch::stable::reshape(taps, {c_in, c_out, phases.taps, phases.stride});
  taps = torch::stable::transpose(taps, 0, 1);  // (C_out, C_in, taps, stride)
  taps = torch::stable::transpose(taps, 1, 3);  // (C_out, stride, taps, C_in)
  taps = torch::stable::transpose(taps, 2, 3);  // (C_out, stride, C_in, taps)
  return torch::stable::reshape(flipped_along_last(taps), {c_out * phases.stride, c_in, phases.taps});
}

}  // namespace convnorm_torch
