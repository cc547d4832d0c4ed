// 16-bit floats to and from vectors of fp32, once per instruction set. Rounds to nearest even; NaN stays NaN.
#if defined(CONVNORM_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVNORM_HALF_INL_H_
#undef CONVNORM_HALF_INL_H_
#else
#define CONVNORM_HALF_INL_H_
#endif

#include "hwy/highway.h"

#ifndef CONVNORM_INLINE
#define CONVNORM_INLINE inline __attribute__((always_inline))
#endif

// Below AVX2 there is no conversion instruction, and Highway's replacement truncates.
#undef CONVNORM_NATIVE_F16
#if HWY_ARCH_ARM || (HWY_ARCH_X86 && HWY_TARGET < HWY_SSE4)
#define CONVNORM_NATIVE_F16 1
#else
#define CONVNORM_NATIVE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace convnorm::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
CONVNORM_INLINE hn::Vec<D> load_float(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
CONVNORM_INLINE hn::Vec<D> load_float(D d, const hwy::bfloat16_t* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

template <class D>
CONVNORM_INLINE hn::Vec<D> load_float(D d, const hwy::float16_t* p) {
#if CONVNORM_NATIVE_F16
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), p));
#else
  // Exponent and mantissa move up by 13 bits and the bias changes by 112. An exponent of 31 (infinity, NaN) moves on by
  // another 112; one of 0 (subnormal) is normalised by a subtraction.
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(p)));
  const auto exponent_mask = hn::Set(du, 0x7c00u << 13), bias = hn::Set(du, 112u << 23);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
  const auto exponent = hn::And(magnitude, exponent_mask);
  auto out = hn::Add(magnitude, bias);
  out = hn::IfThenElse(hn::Eq(exponent, exponent_mask), hn::Add(out, bias), out);
  const auto smallest = hn::Set(du, 113u << 23);
  const auto subnormal =
      hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(out, hn::Set(du, 1u << 23))), hn::BitCast(d, smallest)));
  out = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, out);
  return hn::BitCast(d, hn::Or(out, hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)))));
#endif
}

template <class D>
CONVNORM_INLINE void store_float(hn::Vec<D> v, D d, float* p) {
  hn::StoreU(v, d, p);
}

template <class D>
CONVNORM_INLINE void store_u16(hn::VFromD<hn::RebindToUnsigned<D>> bits, D, uint16_t* p) {
  const hn::RebindToSigned<D> di;
  hn::StoreU(hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(di, bits)), hn::Rebind<uint16_t, D>(), p);
}

template <class D>
CONVNORM_INLINE void store_float(hn::Vec<D> v, D d, hwy::bfloat16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  auto out = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  out = hn::IfThenElse(hn::Gt(hn::And(bits, hn::Set(du, 0x7fffffffu)), hn::Set(du, 0x7f800000u)), nan, out);
  store_u16<D>(out, d, reinterpret_cast<uint16_t*>(p));
}

template <class D>
CONVNORM_INLINE void store_float(hn::Vec<D> v, [[maybe_unused]] D d, hwy::float16_t* p) {
#if CONVNORM_NATIVE_F16
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, p);
#else
  // Normal results: change the bias and round by adding half an ulp less one plus the lowest kept bit. Subnormal ones:
  // let an addition of 1/2 do the rounding. From 65520 on: infinity.
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  auto out = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, (112u << 23) - 0xfffu)), odd));
  const auto half = hn::Set(du, 126u << 23);
  const auto subnormal = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
  out = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 113u << 23)), subnormal, out);
  out = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fefffu)), hn::Set(du, 0x7c00u), out);
  out = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), hn::Set(du, 0x7e00u), out);
  store_u16<D>(hn::Or(out, hn::ShiftRight<16>(sign)), d, reinterpret_cast<uint16_t*>(p));
#endif
}

}  // namespace convnorm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // CONVNORM_HALF_INL_H_
