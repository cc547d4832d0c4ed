// The operators of one backend as functions that PyTorch's registration takes.
#pragma once

#include <utility>

#include "bindings/torch/operator.hpp"

namespace convnorm_torch {

template <const Backend& backend>
Tensor run(Tensor x, Tensor weight, OptionalTensor bias, OptionalTensor gamma, OptionalTensor beta,
           std::string attributes, OptionalTensor lengths, OptionalTensor pre_slope, OptionalTensor post_slope,
           OptionalTensor film_scale, OptionalTensor film_shift, OptionalTensor residual, int64_t weight_id) {
  return conv1d_group_norm(backend,
                           {std::move(x), std::move(weight), std::move(bias), std::move(gamma), std::move(beta),
                            std::move(attributes), std::move(lengths), std::move(pre_slope), std::move(post_slope),
                            std::move(film_scale), std::move(film_shift), std::move(residual), weight_id});
}

template <const Backend& backend>
std::string path(Tensor x, Tensor weight, OptionalTensor bias, OptionalTensor gamma, OptionalTensor beta,
                 std::string attributes, OptionalTensor lengths, OptionalTensor pre_slope, OptionalTensor post_slope,
                 OptionalTensor film_scale, OptionalTensor film_shift, OptionalTensor residual, int64_t weight_id) {
  return chosen_path(backend, {std::move(x), std::move(weight), std::move(bias), std::move(gamma), std::move(beta),
                               std::move(attributes), std::move(lengths), std::move(pre_slope), std::move(post_slope),
                               std::move(film_scale), std::move(film_shift), std::move(residual), weight_id});
}

}  // namespace convnorm_torch
