#include "support/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "descriptor/elements.hpp"
#include "support/fills.hpp"

namespace convnorm::test {

namespace {

using Random = std::mt19937_64;

// Not std::uniform_real_distribution, whose values differ between standard libraries.
float uniform(Random& random) { return static_cast<float>(static_cast<double>(random() >> 40) / (1 << 23) - 1.0); }

float integer(Random& random, int64_t most) {
  return static_cast<float>(static_cast<int64_t>(random() % (2 * most + 1)) - most);
}

float normal(Random& random) {
  float sum = 0;
  for (int i = 0; i < 12; ++i) sum += uniform(random);
  return sum / 2;
}

void round_to(convnorm_dtype dtype, std::vector<float>& values) {
  with_element_type(dtype, [&](auto type) {
    for (float& value : values) value = static_cast<float>(static_cast<double>(decltype(type)(value)));
  });
}

std::vector<float> signal(Fill fill, int64_t rows, int64_t length, Random& random) {
  std::vector<float> values(static_cast<size_t>(rows * length));
  for (int64_t row = 0; row < rows; ++row) {
    float walk = uniform(random), deviation = 0;
    for (int64_t l = 0; l < length; ++l) {
      float& value = values[static_cast<size_t>(row * length + l)];
      switch (fill) {
        case Fill::s:
          value = s_fill_x(row * length + l);
          break;
        case Fill::integers:
          value = integer(random, 8);
          break;
        case Fill::exact_sum:
          deviation = l % 2 == 0 ? integer(random, 8) / 8 : -deviation;
          value = 4 + (l + 1 == length && length % 2 == 1 ? 0 : deviation);
          break;
        case Fill::uniform:
          value = uniform(random);
          break;
        case Fill::correlated:
          walk = 0.98f * walk + 0.1f * uniform(random);
          value = 2 + walk;
          break;
        case Fill::outliers:
          value = normal(random) * (random() % 50 == 0 ? 100.0f : 1.0f);
          break;
      }
    }
  }
  return values;
}

std::vector<float> weights(Fill fill, const Problem& p, const Sizes& sizes, Random& random) {
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.c_per_conv_group * p.k)));
  return filled(sizes.w_elements, [&](int64_t i) {
    switch (fill) {
      case Fill::s:
        return s_fill_w(i);
      case Fill::integers:
      case Fill::exact_sum:
        return integer(random, 4);
      default:
        return uniform(random) * scale;
    }
  });
}

}  // namespace

const char* fill_name(Fill fill) {
  switch (fill) {
    case Fill::s:
      return "s";
    case Fill::integers:
      return "integers";
    case Fill::exact_sum:
      return "exact_sum";
    case Fill::uniform:
      return "uniform";
    case Fill::correlated:
      return "correlated";
    case Fill::outliers:
      return "outliers";
  }
  return "";
}

int64_t channels_before(const Problem& problem, convnorm_op op) {
  int64_t channels = problem.o;
  for (int i = 0; i < problem.post_count && problem.post[i].op != op; ++i) {
    if (problem.post[i].op == CONVNORM_GLU) channels /= 2;
  }
  return channels;
}

Inputs make_inputs(const Problem& problem, Fill fill, uint64_t seed, convnorm_dtype parameters) {
  Inputs in(problem, parameters);
  const Problem& p = in.problem;
  Random random(seed);
  in.x = signal(fill, p.n * p.c, p.l, random);
  in.w = weights(fill, p, in.sizes, random);
  const bool whole = fill == Fill::integers;
  const auto parameter = [&](int64_t count, float (*s_fill)(int64_t)) {
    return filled(count, [&](int64_t i) {
      if (whole) return integer(random, 2);
      return s_fill(fill == Fill::s ? i : i + static_cast<int64_t>(seed % 64));
    });
  };
  if (p.bias) in.bias = parameter(p.o, s_fill_bias);
  if (has_affine(p)) in.gamma = parameter(p.o, s_fill_gamma), in.beta = parameter(p.o, s_fill_beta);
  const auto slopes = [&](int64_t channels, bool one) {
    return filled(one ? 1 : channels, [](int64_t i) { return static_cast<float>(i % 5 - 1) / 8; });
  };
  if (p.pre.op == CONVNORM_PRELU) in.pre_slope = slopes(p.o, seed % 2 == 0);
  if (has_post(p, CONVNORM_PRELU)) in.post_slope = slopes(channels_before(p, CONVNORM_PRELU), seed / 2 % 2 == 0);
  if (has_post(p, CONVNORM_FILM)) {
    const int64_t count = p.n * channels_before(p, CONVNORM_FILM);
    in.film_scale = parameter(count, s_fill_gamma);
    in.film_shift = parameter(count, s_fill_beta);
  }
  if (has_post(p, CONVNORM_ADD)) in.residual = signal(fill, p.n * in.sizes.c_y, in.sizes.l_out, random);
  if (p.lengths) {
    for (int64_t n = 0; n < p.n; ++n) {
      int64_t length = n == 0 ? p.l : static_cast<int64_t>(random() % static_cast<uint64_t>(p.l + 1));
      // A sample that has outputs must also have enough inputs to fill its padding from.
      const int64_t least = p.pad == CONVNORM_REFLECT ? std::max(p.pad_left, p.pad_right) + 1 : 1;
      if (p.pad != CONVNORM_ZEROS && length < least && output_length(p, length) >= 1) length = std::min(least, p.l);
      in.lengths.push_back(length);
    }
  }
  round_to(p.dtype, in.x);
  round_to(p.dtype, in.w);
  round_to(p.dtype, in.residual);
  for (auto* values : {&in.bias, &in.gamma, &in.beta, &in.pre_slope, &in.post_slope, &in.film_scale, &in.film_shift}) {
    round_to(parameters, *values);
  }
  return in;
}

}  // namespace convnorm::test
