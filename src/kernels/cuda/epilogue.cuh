// What happens to values in registers before and after the norm: formulas.inc for floats on the device.
//
// A kernel that holds many values applies one op to all of them at a time: the list of ops is walked at run time
// outside, and the loop over values is unrolled inside. `Place` is a functor: place(i) is the Position of value i. With
// an inlined functor whose channels repeat, the compiler loads each slope or film value once.
#pragma once

#include "epilogue/ops.hpp"
#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/ptx/math.cuh"

namespace convnorm::cuda {

struct DeviceMath {
  using V = float;

  static __device__ V set(double x) { return static_cast<float>(x); }
  static __device__ V abs(V x) { return fabsf(x); }
  static __device__ V min(V a, V b) { return b < a ? b : a; }
  static __device__ V mul(V a, V b) { return a * b; }
  static __device__ V add(V a, V b) { return a + b; }
  static __device__ V mul_add(V a, V b, V c) { return fmaf(a, b, c); }
  // Relative error 2e-7 + 8e-8 |x|, as x / ln 2 is rounded before it is an exponent: two instructions instead of seven.
  static __device__ V exp(V x) { return ptx::exp2_approximate(1.44269504f * x); }
  static __device__ V expm1(V x) { return expm1f(x); }
  static __device__ V copy_sign(V magnitude, V sign) { return copysignf(magnitude, sign); }
  static __device__ V select_negative(V x, V if_negative, V otherwise) { return x < 0 ? if_negative : otherwise; }

  // Two ulp, for denominators below 2^126: those of formulas.inc stay below exp(60).
  static __device__ V div(V a, V b) { return a * ptx::reciprocal_approximate(b); }

  static __device__ V sigmoid(V x) { return ptx::reciprocal_approximate(1.0f + exp(-x)); }

  // max(x, 0) - |x| Phi(-|x|). The logarithm of Phi is smooth enough for a polynomial of degree 7 (weighted minimax
  // fit): absolute error of the whole 1.4e-7, relative error of the tail 1e-3 down to -8.3. erfcf takes three times as
  // long. Far out Phi is 0, so that infinity stays and minus infinity, times 0, gives NaN as in PyTorch.
  static __device__ V gelu_erf(V x) {
    const V u = fabsf(x);
    V p = -1.41697217e-06f;
    p = fmaf(p, u, 5.3613443e-05f);
    p = fmaf(p, u, -8.7568938e-04f);
    p = fmaf(p, u, 8.34236201e-03f);
    p = fmaf(p, u, -5.37397563e-02f);
    p = fmaf(p, u, -4.58566159e-01f);
    p = fmaf(p, u, -1.15125847f);
    p = fmaf(p, u, -9.99988079e-01f);
    const V t = fmaxf(fminf(u, 16.0f), -x);  // |x|, or 16 above that
    return fmaf(-t, ptx::exp2_approximate(p), fmaxf(x, 0.0f));
  }
};

#define CONVNORM_INLINE __device__ __forceinline__
#include "epilogue/formulas.inc"
#undef CONVNORM_INLINE

// Where a value stands in (N, channels, L_out).
struct Position {
  int64_t n, channel, l;
  bool inside;  // false: the value is of no account, and no tensor is read for it
};

__device__ inline int64_t y_index(const Arguments& a, const Position& p) {
  return a.layout == CONVNORM_NCL ? (p.n * a.c_y + p.channel) * a.l_out + p.l
                                  : (p.n * a.l_out + p.l) * a.c_y + p.channel;
}

// Valid inputs of a sample. The host cannot look at lengths: what lies outside [0, L] is taken as the nearer end.
__device__ inline int64_t sample_length(const Arguments& a, int64_t n) {
  if (a.lengths == nullptr) return a.l;
  const int64_t length = __ldg(reinterpret_cast<const long long*>(a.lengths) + n);
  return length < 0 ? 0 : length > a.l ? a.l : length;
}

// Valid outputs for a number of valid inputs; as output_length() of the descriptor.
__device__ inline int64_t valid_outputs(const Arguments& a, int64_t length) {
  const int64_t room = length + a.pad_left + a.pad_right - (a.dilation * (a.k - 1) + 1);
  return room < 0 ? 0 : room / a.stride + 1;
}

// Where position i of a sample with `length` inputs comes from; -1 for a zero. A length that is too short for its
// reflection, which the CPU refuses by name, is held inside the sample.
__device__ inline int64_t input_position(const Arguments& a, int64_t i, int64_t length) {
  if (i >= 0 && i < length) return i;
  if (a.pad == CONVNORM_ZEROS || length == 0) return -1;
  if (a.pad == CONVNORM_REFLECT) i = i < 0 ? -i : 2 * (length - 1) - i;
  return i < 0 ? 0 : i >= length ? length - 1 : i;
}

// 0, or NaN where the packed weight is none or was packed for another plan. Sums start from it, so that all of y tells.
__device__ inline float packed_fault(const Arguments& a) {
  const auto found = __ldg(reinterpret_cast<const unsigned long long*>(&a.packed->fingerprint));
  return found == a.fingerprint ? 0.0f : __int_as_float(0x7fffffff);
}

namespace detail {

// Calls body(formula) with the formula of an op, which takes a value and an argument as the SIMD kernels do.
template <class Body>
__device__ __forceinline__ void with_formula(convnorm_op op, const Body& body) {
#define CONVNORM_APPLY_pointwise(enumerator, name)                                                 \
  case CONVNORM_##enumerator:                                                                      \
    body([](float value, float argument) { return Formulas<DeviceMath>::name(value, argument); }); \
    break;
#define CONVNORM_APPLY_slope(enumerator, name) CONVNORM_APPLY_pointwise(enumerator, name)
#define CONVNORM_APPLY_film(enumerator, name)
#define CONVNORM_APPLY_add(enumerator, name)
#define CONVNORM_APPLY_glu(enumerator, name)
#define CONVNORM_OP(enumerator, name, kind, default_param, formula) CONVNORM_APPLY_##kind(enumerator, name)
  switch (op) {
#include "epilogue/ops.def"
    default:
      break;
  }
#undef CONVNORM_OP
#undef CONVNORM_APPLY_pointwise
#undef CONVNORM_APPLY_slope
#undef CONVNORM_APPLY_film
#undef CONVNORM_APPLY_add
#undef CONVNORM_APPLY_glu
}

// One pointwise formula on many values.
template <int N, class Argument>
__device__ __forceinline__ void apply_formula(convnorm_op op, float (&v)[N], const Argument& argument) {
  with_formula(op, [&](const auto& formula) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = formula(v[i], argument(i));
  });
}

}  // namespace detail

// The op between convolution and norm: none, relu or prelu.
template <int N, class Place>
__device__ __forceinline__ void apply_pre(const Arguments& a, float (&v)[N], const Place& place) {
  if (a.pre == CONVNORM_RELU) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = Formulas<DeviceMath>::relu(v[i], 0);
  } else if (a.pre == CONVNORM_PRELU) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Position at = place(i);
      const float slope = at.inside ? load(a.pre_slope, a.param_dtype, a.pre_slope_per_channel ? at.channel : 0) : 0.0f;
      v[i] = Formulas<DeviceMath>::prelu(v[i], slope);
    }
  }
}

// Ops [first, last) of the list, none of which is a glu: [0, a.glu) on channels of C_out, (a.glu, a.post_count) on
// those of y.
template <int N, class Place>
__device__ __forceinline__ void apply_post(const Arguments& a, int first, int last, float (&v)[N], const Place& place) {
  for (int s = first; s < last; ++s) {
    const PostOp& stage = a.post[s];
    switch (stage.op) {
      case CONVNORM_PRELU:
        detail::apply_formula(stage.op, v, [&](int i) {
          const Position at = place(i);
          return at.inside ? load(a.post_slope, a.param_dtype, a.post_slope_per_channel ? at.channel : 0) : 0.0f;
        });
        break;
      case CONVNORM_FILM:
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const Position at = place(i);
          if (!at.inside) continue;
          const int64_t row = at.n * stage.channels + at.channel;
          v[i] = fmaf(v[i], load(a.film_scale, a.param_dtype, row), load(a.film_shift, a.param_dtype, row));
        }
        break;
      case CONVNORM_ADD:
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const Position at = place(i);
          if (at.inside) v[i] += load(a.residual, a.dtype, y_index(a, at));
        }
        break;
      default:
        detail::apply_formula(stage.op, v, [&](int) { return stage.param; });
        break;
    }
  }
}

}  // namespace convnorm::cuda
