// The arithmetic of formulas.inc for doubles: what the reference computes with.
#pragma once

#include <cmath>

#include "epilogue/ops.hpp"

namespace convnorm::epilogue {

struct ScalarMath {
  using V = double;

  static V set(double x) { return x; }
  static V abs(V x) { return std::fabs(x); }
  static V min(V a, V b) { return b < a ? b : a; }
  static V mul(V a, V b) { return a * b; }
  static V add(V a, V b) { return a + b; }
  static V div(V a, V b) { return a / b; }
  static V mul_add(V a, V b, V c) { return a * b + c; }
  static V exp(V x) { return std::exp(x); }
  static V expm1(V x) { return std::expm1(x); }
  static V copy_sign(V magnitude, V sign) { return std::copysign(magnitude, sign); }
  static V select_negative(V x, V if_negative, V otherwise) { return x < 0 ? if_negative : otherwise; }

  // Both forms divide by a number in [1, 2], so neither overflows and the small end keeps its relative accuracy.
  static V sigmoid(V x) {
    const V e = std::exp(-std::fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
  }

  // erfc instead of 1 + erf, which cancels below -3.
  static V gelu_erf(V x) { return 0.5 * x * std::erfc(x * -0.70710678118654752440); }
};

#define CONVNORM_INLINE inline
#include "epilogue/formulas.inc"
#undef CONVNORM_INLINE

// `argument` is the stage's parameter, or the channel's slope. Operations that read other tensors are not applied here.
inline double apply(convnorm_op op, double x, double argument) {
#define CONVNORM_APPLY_pointwise(enumerator, name) \
  case CONVNORM_##enumerator:                      \
    return Formulas<ScalarMath>::name(x, argument);
#define CONVNORM_APPLY_slope(enumerator, name) CONVNORM_APPLY_pointwise(enumerator, name)
#define CONVNORM_APPLY_film(enumerator, name)
#define CONVNORM_APPLY_add(enumerator, name)
#define CONVNORM_APPLY_glu(enumerator, name)
#define CONVNORM_OP(enumerator, name, kind, default_param, formula) CONVNORM_APPLY_##kind(enumerator, name)
  switch (op) {
#include "epilogue/ops.def"
    default:
      return x;
  }
#undef CONVNORM_OP
#undef CONVNORM_APPLY_pointwise
#undef CONVNORM_APPLY_slope
#undef CONVNORM_APPLY_film
#undef CONVNORM_APPLY_add
#undef CONVNORM_APPLY_glu
}

}  // namespace convnorm::epilogue
