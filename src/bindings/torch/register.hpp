// The operators of one backend as functions that PyTorch's registration takes.
#pragma once

#include <utility>

#include "bindings/torch/operator.hpp"

namespace convnorm_torch {

template <const Backend& backend>
Tensor run(Tensor x, Tensor weight, OptionalTensor bias, OptionalTensor gamma, OptionalTensor beta,
           std::string attributes, int64_t weight_id, OptionalTensor lengths, OptionalTensor pre_slope,
           OptionalTensor post_slope, OptionalTensor film_scale, OptionalTensor film_shift, OptionalTensor residual) {
  return conv1d_group_norm(
      backend, {std::move(x), std::move(weight), std::move(bias), std::move(gamma), std::move(beta),
                std::move(attributes), weight_id, std::move(lengths), std::move(pre_slope), std::move(post_slope),
                std::move(film_scale), std::move(film_shift), std::move(residual)});
}

template <const Backend& backend>
Tensor run_phases(Tensor x, Tensor weight, std::string attributes, int64_t stride, int64_t left, int64_t taps,
                  int64_t weight_id) {
  Inputs inputs{.x = std::move(x), .weight = std::move(weight), .attributes = std::move(attributes)};
  inputs.weight_id = weight_id;
  inputs.phases = {.stride = stride, .left = left, .taps = taps};
  return conv1d_group_norm(backend, std::move(inputs));
}

template <const Backend& backend>
std::string path(Tensor x, Tensor weight, OptionalTensor bias, OptionalTensor gamma, OptionalTensor beta,
                 std::string attributes, int64_t weight_id, OptionalTensor lengths, OptionalTensor pre_slope,
                 OptionalTensor post_slope, OptionalTensor film_scale, OptionalTensor film_shift,
                 OptionalTensor residual) {
  return chosen_path(backend,
                     {std::move(x), std::move(weight), std::move(bias), std::move(gamma), std::move(beta),
                      std::move(attributes), weight_id, std::move(lengths), std::move(pre_slope), std::move(post_slope),
                      std::move(film_scale), std::move(film_shift), std::move(residual)});
}

}  // namespace convnorm_torch
