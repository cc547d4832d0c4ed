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
  // x86 returns the second operand when one is NaN: the variable goes there.
  static CONVNORM_INLINE V min(V x, V bound) { return hn::Min(bound, x); }
  static CONVNORM_INLINE V max(V x, V bound) { return hn::Max(bound, x); }
  static CONVNORM_INLINE V mul(V a, V b) { return hn::Mul(a, b); }
  static CONVNORM_INLINE V add(V a, V b) { return hn::Add(a, b); }
  static CONVNORM_INLINE V sub(V a, V b) { return hn::Sub(a, b); }
  static CONVNORM_INLINE V div(V a, V b) { return hn::Div(a, b); }
  static CONVNORM_INLINE V mul_add(V a, V b, V c) { return hn::MulAdd(a, b, c); }
  static CONVNORM_INLINE V copy_sign(V magnitude, V sign) { return hn::CopySign(magnitude, sign); }
  static CONVNORM_INLINE V select_negative(V x, V if_negative, V otherwise) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), if_negative, otherwise);
  }

  // 2^n for integral n in [-126, 127], given as a vector of floats.
  static CONVNORM_INLINE V power_of_two(V n) {
    const hn::RebindToSigned<F32> di;
    return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
  }

  // x = n ln2 + r, |r| <= ln2/2; returns exp(r) - 1 and n. For x in [-87, 88].
  static CONVNORM_INLINE V reduced_expm1(V x, V& n) {
    n = hn::Round(hn::Mul(x, set(1.4426950408889634)));
    V r = hn::NegMulAdd(n, set(0.693359375), x);
    r = hn::NegMulAdd(n, set(-2.12194440e-4), r);
    V p = hn::MulAdd(r, set(1.0 / 5040), set(1.0 / 720));
    p = hn::MulAdd(p, r, set(1.0 / 120));
    p = hn::MulAdd(p, r, set(1.0 / 24));
    p = hn::MulAdd(p, r, set(1.0 / 6));
    p = hn::MulAdd(p, r, set(0.5));
    return hn::MulAdd(hn::Mul(r, r), p, r);
  }

  // 0 below -87.3 (where the result would be subnormal), infinity above 88.3.
  static CONVNORM_INLINE V exp(V x) {
    V n;
    const V bounded = max(min(x, set(88.0)), set(-87.3));
    const V m = reduced_expm1(bounded, n);
    V e = hn::MulAdd(m, power_of_two(n), power_of_two(n));
    e = hn::IfThenElse(hn::Lt(x, set(-87.3)), hn::Zero(F32()), e);
    return hn::IfThenElse(hn::Gt(x, set(88.3)), set(HUGE_VALF), e);
  }

  // For x <= 80. expm1(x) = 2^n expm1(r) + (2^n - 1), exact in its second term.
  static CONVNORM_INLINE V expm1(V x) {
    V n;
    const V m = reduced_expm1(max(x, set(-80.0)), n);
    const V p = power_of_two(n);
    return hn::MulAdd(m, p, hn::Sub(p, set(1.0)));
  }

  static CONVNORM_INLINE V sigmoid(V x) { return hn::Div(set(1.0), hn::Add(set(1.0), exp(hn::Neg(x)))); }

  // max(x, 0) - |x| Phi(-|x|), with log2 Phi(-t) as a polynomial of degree 8 on [0, 13] (weighted minimax fit): absolute
  // error of the whole 2.2e-7, relative error of the tail 7e-4 down to -13, below which the tail is zero.
  static CONVNORM_INLINE V gelu_erf(V x) {
    const V t = hn::Abs(x);
    const V u = min(t, set(13.0));
    V p = set(4.7753228926694646e-08);
    p = hn::MulAdd(p, u, set(-2.742161086644046e-06));
    p = hn::MulAdd(p, u, set(6.744535494362935e-05));
    p = hn::MulAdd(p, u, set(-0.0009437826229259372));
    p = hn::MulAdd(p, u, set(0.008507621474564075));
    p = hn::MulAdd(p, u, set(-0.05393402278423309));
    p = hn::MulAdd(p, u, set(-0.4584687650203705));
    p = hn::MulAdd(p, u, set(-1.1512696743011475));
    p = hn::MulAdd(p, u, set(-0.9999903440475464));
    const V n = hn::Round(p);
    const V r = hn::Sub(p, n);
    // 2^r on [-1/2, 1/2], relative error 2e-7.
    V e = set(1.3333558146428443e-3);
    e = hn::MulAdd(e, r, set(9.6181291076284772e-3));
    e = hn::MulAdd(e, r, set(5.5504108664821580e-2));
    e = hn::MulAdd(e, r, set(2.4022650695910072e-1));
    e = hn::MulAdd(e, r, set(6.9314718055994531e-1));
    e = hn::MulAdd(e, r, set(1.0));
    V tail = hn::Mul(e, power_of_two(n));
    tail = hn::IfThenElse(hn::Gt(t, set(13.0)), hn::Zero(F32()), tail);
    return hn::NegMulAdd(t, tail, max(x, hn::Zero(F32())));
  }
};

#include "epilogue/formulas.inc"

}  // namespace convnorm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // CONVNORM_SIMD_MATH_INL_H_
