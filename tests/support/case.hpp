// One problem with its tensors, computed by any path through the C interface. Tensors are given as fp32 and converted
// to the problem's type; y is poisoned, has guards on both sides, and the inputs are compared after the call.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "convnorm/convnorm.h"
#include "descriptor/elements.hpp"
#include "descriptor/problem.hpp"
#include "support/fills.hpp"

namespace convnorm::test {

inline std::vector<std::byte> encode(const std::vector<float>& values, convnorm_dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(element_size(dtype)));
  with_element_type(dtype, [&](auto type) {
    for (size_t i = 0; i < values.size(); ++i) {
      const decltype(type) element(static_cast<double>(values[i]));
      std::memcpy(bytes.data() + i * sizeof(element), &element, sizeof(element));
    }
  });
  return bytes;
}

class Case {
 public:
  // S fill for every tensor that the problem has. Tensors are in NCL; run() turns them for an NLC problem.
  explicit Case(const std::string& line) : problem(parse_problem(line)), sizes(problem) {
    const Problem& p = problem;
    x = filled(sizes.x_elements, s_fill_x);
    w = filled(sizes.w_elements, s_fill_w);
    if (p.bias) bias = filled(p.o, s_fill_bias);
    if (has_affine(p)) gamma = filled(p.o, s_fill_gamma), beta = filled(p.o, s_fill_beta);
    if (p.pre.op == CONVNORM_PRELU) pre_slope = {0.25f};
    int64_t channels = p.o;
    for (int i = 0; i < p.post_count; ++i) {
      if (p.post[i].op == CONVNORM_GLU) channels /= 2;
      if (p.post[i].op == CONVNORM_PRELU) post_slope = filled(channels, s_fill_gamma);
      if (p.post[i].op == CONVNORM_FILM) {
        film_scale = filled(p.n * channels, s_fill_gamma);
        film_shift = filled(p.n * channels, s_fill_beta);
      }
    }
    if (has_post(p, CONVNORM_ADD)) residual = filled(sizes.y_elements, s_fill_x);
    if (p.lengths) lengths.assign(static_cast<size_t>(p.n), p.l);
  }

  // y in NCL. The path and target of the options are asserted, so that no test passes by falling back.
  std::vector<double> run(convnorm_plan_options options = {}, const convnorm_launch* launch = nullptr,
                          convnorm_dtype param_dtype = CONVNORM_F32) const {
    const Problem& p = problem;
    convnorm_plan* plan = nullptr;
    EXPECT_EQ(convnorm_plan_create(&p, &options, &plan), CONVNORM_OK) << convnorm_last_error();
    if (plan == nullptr) return {};
    if (options.path != nullptr) {
      EXPECT_STREQ(convnorm_plan_path(plan), options.path);
    }

    const auto weight = encode(w, p.dtype);
    std::vector<std::byte> packed(convnorm_plan_packed_size(plan), kPoison);
    EXPECT_EQ(convnorm_pack_weight(plan, weight.data(), packed.data(), packed.size(), launch), CONVNORM_OK)
        << convnorm_last_error();

    const auto element = static_cast<size_t>(element_size(p.dtype));
    const size_t y_bytes = static_cast<size_t>(sizes.y_elements) * element;
    std::vector<std::byte> guarded_y(y_bytes + 2 * kGuard, kPoison);
    std::vector<std::byte> workspace(convnorm_plan_workspace_size(plan) + kGuard, kPoison);
    const auto given_x = encode(to_layout(x, p.c, p.l), p.dtype);
    const auto given_residual = encode(to_layout(residual, sizes.c_y, sizes.l_out), p.dtype);
    const auto parameter = [&](const std::vector<float>& values) { return encode(values, param_dtype); };
    const auto given_bias = parameter(bias), given_gamma = parameter(gamma), given_beta = parameter(beta),
               given_pre = parameter(pre_slope), given_post = parameter(post_slope),
               given_scale = parameter(film_scale), given_shift = parameter(film_shift);
    const auto pointer = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
    const auto packed_before = packed;
    const convnorm_tensors tensors{.x = pointer(given_x),
                                   .packed_weight = packed.data(),
                                   .bias = pointer(given_bias),
                                   .gamma = pointer(given_gamma),
                                   .beta = pointer(given_beta),
                                   .lengths = pointer(lengths),
                                   .pre_slope = pointer(given_pre),
                                   .post_slope = pointer(given_post),
                                   .film_scale = pointer(given_scale),
                                   .film_shift = pointer(given_shift),
                                   .residual = pointer(given_residual),
                                   .y = guarded_y.data() + kGuard,
                                   .pre_slope_per_channel = pre_slope.size() > 1,
                                   .post_slope_per_channel = post_slope.size() > 1,
                                   .param_dtype = param_dtype};
    EXPECT_EQ(convnorm_execute(plan, &tensors, workspace.data(), workspace.size() - kGuard, launch), CONVNORM_OK)
        << convnorm_last_error();
    convnorm_plan_destroy(plan);

    EXPECT_EQ(packed, packed_before);
    EXPECT_EQ(given_x, encode(to_layout(x, p.c, p.l), p.dtype));
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(guarded_y[i], kPoison) << "written before y";
      EXPECT_EQ(guarded_y[kGuard + y_bytes + i], kPoison) << "written past y";
      EXPECT_EQ(workspace[workspace.size() - kGuard + i], kPoison) << "written past the workspace";
    }

    std::vector<double> y(static_cast<size_t>(sizes.y_elements));
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = load_element(guarded_y.data() + kGuard, p.dtype, static_cast<int64_t>(i));
    }
    return from_layout(y, sizes.c_y, sizes.l_out);
  }

  Problem problem;
  Sizes sizes;
  std::vector<float> x, w, bias, gamma, beta, pre_slope, post_slope, film_scale, film_shift, residual;
  std::vector<int64_t> lengths;

 private:
  static constexpr std::byte kPoison{0xff};  // a NaN in every type
  static constexpr size_t kGuard = 128;

  // (N, C, L) <-> the problem's layout.
  template <class T>
  std::vector<T> turned(const std::vector<T>& values, int64_t rows, int64_t columns) const {
    if (problem.layout == CONVNORM_NCL || values.empty()) return values;
    std::vector<T> result(values.size());
    for (int64_t n = 0; n < problem.n; ++n) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          result[static_cast<size_t>((n * columns + c) * rows + r)] =
              values[static_cast<size_t>((n * rows + r) * columns + c)];
        }
      }
    }
    return result;
  }
  std::vector<float> to_layout(const std::vector<float>& ncl, int64_t channels, int64_t length) const {
    return turned(ncl, channels, length);
  }
  std::vector<double> from_layout(const std::vector<double>& values, int64_t channels, int64_t length) const {
    return turned(values, length, channels);
  }
};

inline double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

inline double sum_of_squares(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value * value;
  return total;
}

// Each within tolerance * max(1, |expected|); a NaN on one side only is a difference.
inline void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    ASSERT_LE(std::fabs(actual[i] - expected[i]), tolerance * std::max(1.0, std::fabs(expected[i])))
        << "at " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

}  // namespace convnorm::test
