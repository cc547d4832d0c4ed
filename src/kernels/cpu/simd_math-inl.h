// Vector arithmetic for formulas.inc, once per instruction set.
#if defined(CONVNORM_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVNORM_SIMD_MATH_INL_H_
#undef CONVNORM_SIMD_MATH_INL_H_
#else
#define CONVNORM_SIMD_MATH_INL_H_
#endif

#include "hwy/highway.h"

#ifndef CONVNORM_INLINE
#define CONVNORM_INLINE inline __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace convnorm::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;

struct SimdMath {
  using V = VF;
  static CONVNORM_INLINE V set(double x) { return hn::Set(F32(), static_cast<float>(x)); }
  static CONVNORM_INLINE V abs(V x) { return hn::Abs(x); }
  // x86 returns the second operand when one is NaN: the variable goes there. Highway's scalar code returns the other
  // one.
#if HWY_TARGET == HWY_SCALAR
  static CONVNORM_INLINE V min(V x, V bound) { return hn::IfThenElse(hn::Lt(bound, x), bound, x); }
  static CONVNORM_INLINE V max(V x, V bound) { return hn::IfThenElse(hn::Lt(x, bound), bound, x); }
#else
  static CONVNORM_INLINE V min(V x, V bound) { return hn::Min(bound, x); }
  static CONVNORM_INLINE V max(V x, V bound) { return hn::Max(bound, x); }
#endif
  static CONVNORM_INLINE V mul(V a, V b) { return hn::Mul(a, b); }
  static CONVNORM_INLINE V add(V a, V b) { return hn::Add(a, b); }
  static CONVNORM_INLINE V sub(V a, V b) { return hn::Sub(a, b); }
  static CONVNORM_INLINE V div(V a, V b) { return hn::Div(a, b); }
  static CONVNORM_INLINE V mul_add(V a, V b, V c) { return hn::MulAdd(a, b, c); }
  static CONVNORM_INLINE V copy_sign(V magnitude, V sign) { return hn::CopySign(magnitude, sign); }
  static CONVNORM_INLINE V select_negative(V x, V if_negative, V otherwise) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), if_negative, otherwise);
  }

  // x rounded to an integer n in [-127, 128], and 2^n; 0 for -127 and infinity for 128. Adding 1.5 * 2^23 leaves the
  // integer in the low bits of the sum, here with the exponent's bias already on top.
  static CONVNORM_INLINE V round_to_power(V x, V& power) {
    const V magic = set(12582912.0 + 127.0);
    const V sum = hn::Add(x, magic);
    power = hn::BitCast(F32(), hn::ShiftLeft<23>(hn::BitCast(hn::RebindToUnsigned<F32>(), sum)));
    return hn::Sub(sum, magic);
  }

  // x = n ln2 + r, |r| <= ln2/2; returns exp(r) - 1, and 2^n. For x in [-88.1, 89].
  static CONVNORM_INLINE V reduced_expm1(V x, V& power) {
    const V n = round_to_power(hn::Mul(x, set(1.4426950408889634)), power);
    V r = hn::NegMulAdd(n, set(0.693359375), x);
    r = hn::NegMulAdd(n, set(-2.12194440e-4), r);
    V p = hn::MulAdd(r, set(1.0 / 5040), set(1.0 / 720));
    p = hn::MulAdd(p, r, set(1.0 / 120));
    p = hn::MulAdd(p, r, set(1.0 / 24));
    p = hn::MulAdd(p, r, set(1.0 / 6));
    p = hn::MulAdd(p, r, set(0.5));
    return hn::MulAdd(hn::Mul(r, r), p, r);
  }

  // 0 below -87.7, where the result would be subnormal, infinity above 88.4.
  static CONVNORM_INLINE V exp(V x) {
    V power;
    const V m = reduced_expm1(max(min(x, set(89.0)), set(-88.1)), power);
    return hn::Mul(hn::Add(m, set(1.0)), power);
  }

  // For x <= 80. expm1(x) = 2^n expm1(r) + (2^n - 1), exact in its second term.
  static CONVNORM_INLINE V expm1(V x) {
    V power;
    const V m = reduced_expm1(max(x, set(-80.0)), power);
    return hn::MulAdd(m, power, hn::Sub(power, set(1.0)));
  }

  static CONVNORM_INLINE V sigmoid(V x) { return hn::Div(set(1.0), hn::Add(set(1.0), exp(hn::Neg(x)))); }

  // max(x, 0) - |x| Phi(-|x|). The eighth root of Phi(-u) is smooth enough for a polynomial, (12.9 - u) times one of
  // degree 10 (weighted minimax fit): absolute error of the whole 2.6e-7, relative error of the tail 9e-4 down to -8.3.
  // No exponential, and half of the time of one. At the bound Phi is 0, so that infinity stays and minus infinity,
  // times 0, gives NaN as in PyTorch.
  static CONVNORM_INLINE V gelu_erf(V x) {
    const V u = min(hn::Abs(x), set(12.9));
    V p = set(1.1882020367615098e-10);
    p = hn::MulAdd(p, u, set(-4.0400074396984564e-09));
    p = hn::MulAdd(p, u, set(4.221323379738351e-08));
    p = hn::MulAdd(p, u, set(3.11481649362122e-08));
    p = hn::MulAdd(p, u, set(-3.0632104426331352e-06));
    p = hn::MulAdd(p, u, set(8.529012120561674e-06));
    p = hn::MulAdd(p, u, set(9.899132419377565e-05));
    p = hn::MulAdd(p, u, set(-0.00025491384440101683));
    p = hn::MulAdd(p, u, set(-0.002596873790025711));
    p = hn::MulAdd(p, u, set(-0.0015793247148394585));
    p = hn::MulAdd(p, u, set(0.07108559459447861));
    p = hn::Mul(p, hn::Sub(set(12.9), u));
    p = hn::Mul(p, p);
    p = hn::Mul(p, p);
    p = hn::Mul(p, p);
    const V t = hn::Max(u, hn::Neg(x));  // |x|, or 12.9 above that
    return hn::NegMulAdd(t, p, max(x, hn::Zero(F32())));
  }
};

#include "epilogue/formulas.inc"

}  // namespace convnorm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // CONVNORM_SIMD_MATH_INL_H_
