// Everything that is done to a row of values: fetch with padding, statistics, norm, epilogue, conversion. Once per
// instruction set. Tails are computed as whole vectors in a small buffer, so there is one body per loop.
#if defined(CONVNORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVNORM_ROWS_INL_H_
#undef CONVNORM_ROWS_INL_H_
#else
#define CONVNORM_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convnorm::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Applies `f(vector) -> vector` to count values. The tail goes through a buffer of one vector.
template <class From, class To, class F>
CONVNORM_INLINE void map_row(const From* from, To* to, int64_t count, const F& f) {
  const F32 d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  // Two at a time: most formulas are one long chain of dependent instructions.
  for (; i + 2 * n <= count; i += 2 * n) {
    const VF a = f(load_float(d, from + i)), b = f(load_float(d, from + i + n));
    store_float(a, d, to + i);
    store_float(b, d, to + i + n);
  }
  for (; i + n <= count; i += n) store_float(f(load_float(d, from + i)), d, to + i);
  if (i < count) {
    HWY_ALIGN From head[hn::MaxLanes(F32())] = {};
    HWY_ALIGN To tail[hn::MaxLanes(F32())];
    std::memcpy(head, from + i, static_cast<size_t>(count - i) * sizeof(From));
    store_float(f(load_float(d, head)), d, tail);
    std::memcpy(static_cast<void*>(to + i), tail, static_cast<size_t>(count - i) * sizeof(To));
  }
}

struct Identity {
  CONVNORM_INLINE VF operator()(VF x) const { return x; }
};

inline void to_float(const void* from, convnorm_dtype dtype, float* to, int64_t count) {
  switch (dtype) {
    case CONVNORM_F32:
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return;
    case CONVNORM_F16:
      return map_row(static_cast<const hwy::float16_t*>(from), to, count, Identity());
    case CONVNORM_BF16:
      return map_row(static_cast<const hwy::bfloat16_t*>(from), to, count, Identity());
  }
}

// map_row with stores that bypass the caches. Whole cache lines only: a line that is written partly past the caches and
// partly through them costs a trip to memory.
template <class F>
CONVNORM_INLINE void stream_row(const float* from, float* to, int64_t count, const F& f) {
  const F32 d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d)),
                line = std::max<int64_t>(n, 64 / static_cast<int64_t>(sizeof(float)));
  const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / sizeof(float)) % line;
  const int64_t head = std::min(count, past == 0 ? 0 : line - past), end = head + (count - head) / line * line;
  map_row(from, to, head, f);
  int64_t i = head;
  for (; i + 2 * n <= end; i += 2 * n) {
    const VF a = f(hn::LoadU(d, from + i)), b = f(hn::LoadU(d, from + i + n));
    hn::Stream(a, d, to + i);
    hn::Stream(b, d, to + i + n);
  }
  for (; i < end; i += n) hn::Stream(f(hn::LoadU(d, from + i)), d, to + i);
  map_row(from + end, to + end, count - end, f);
}

inline void from_float(const float* from, void* to, convnorm_dtype dtype, int64_t count, bool stream) {
  switch (dtype) {
    case CONVNORM_F32:
      if (stream) return stream_row(from, static_cast<float*>(to), count, Identity());
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return;
    case CONVNORM_F16:
      return map_row(from, static_cast<hwy::float16_t*>(to), count, Identity());
    case CONVNORM_BF16:
      return map_row(from, static_cast<hwy::bfloat16_t*>(to), count, Identity());
  }
}

inline float scalar_at(const void* x, convnorm_dtype dtype, int64_t i) {
  if (dtype == CONVNORM_F32) return static_cast<const float*>(x)[i];
  float value;
  to_float(static_cast<const uint16_t*>(x) + i, dtype, &value, 1);
  return value;
}

// The input that stands at index i of the padded row, or -1 for a zero.
inline int64_t padded_index(const FetchRow& r, int64_t i) {
  if (i >= 0 && i < r.length) return i;
  if (i < -r.reach_left || i >= r.length + r.reach_right || r.length == 0) return -1;
  switch (r.pad) {
    case CONVNORM_ZEROS:
      return -1;
    case CONVNORM_REFLECT: {
      const int64_t j = i < 0 ? -i : 2 * (r.length - 1) - i;
      return j >= 0 && j < r.length ? j : -1;
    }
    case CONVNORM_REPLICATE:
      return i < 0 ? 0 : r.length - 1;
  }
  return -1;
}

inline void fetch_padding(const FetchRow& r, float* row, int64_t from, int64_t to) {
  // Past the right padding nothing is read by a valid output: zeros, and cheap ones, for that part can be long.
  const int64_t reach = r.length + r.reach_right - r.first;
  const int64_t padded =
      r.pad == CONVNORM_ZEROS ? from : std::clamp(reach > 0 ? (reach - 1) / r.every + 1 : 0, from, to);
  for (int64_t j = from; j < padded; ++j) {
    const int64_t i = padded_index(r, r.first + j * r.every);
    row[j] = i < 0 ? 0.0f : scalar_at(r.x, r.dtype, i * r.step);
  }
  std::fill(row + padded, row + to, 0.0f);
}

template <class Element>
inline void gather_row(const Element* x, int64_t step, Element* to, int64_t count) {
  for (int64_t j = 0; j < count; ++j) to[j] = x[j * step];
}

inline void fetch_row(const FetchRow& r, float* row) {
  // First j with first + j * every >= 0, and first with >= length.
  const auto reaches = [&](int64_t bound) { return bound <= r.first ? 0 : (bound - r.first - 1) / r.every + 1; };
  const int64_t begin = std::min<int64_t>(reaches(0), r.count);
  const int64_t end = std::clamp<int64_t>(reaches(r.length), begin, r.count);
  fetch_padding(r, row, 0, begin);
  fetch_padding(r, row, end, r.count);
  if (begin == end) return;
  const int64_t inside = (r.first + begin * r.every) * r.step, step = r.every * r.step;
  if (r.dtype == CONVNORM_F32) {
    const float* x = static_cast<const float*>(r.x) + inside;
    if (step == 1) return to_float(x, r.dtype, row + begin, end - begin);
    return gather_row(x, step, row + begin, end - begin);
  }
  const uint16_t* x = static_cast<const uint16_t*>(r.x) + inside;
  if (step == 1) return to_float(x, r.dtype, row + begin, end - begin);
  uint16_t gathered[64];
  for (int64_t j = begin; j < end; j += 64) {
    const int64_t count = std::min<int64_t>(64, end - j);
    gather_row(x + (j - begin) * step, step, gathered, count);
    to_float(gathered, r.dtype, row + j, count);
  }
}

inline void take_every(const float* row, int64_t stride, float* phase, int64_t count) {
  for (int64_t j = 0; j < count; ++j) phase[j] = row[j * stride];
}

// The loops take whole vectors as long as these do not read past row[count * stride - 1].
inline void deal_phases(const float* row, int64_t stride, float* phases, int64_t phase_row, int64_t count) {
  const F32 d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  VF a, b, c, e;
  if (stride == 2) {
    for (; j + n <= count; j += n) {
      hn::LoadInterleaved2(d, row + 2 * j, a, b);
      hn::StoreU(a, d, phases + j);
      hn::StoreU(b, d, phases + phase_row + j);
    }
  } else if (stride == 3) {
    for (; j + n <= count; j += n) {
      hn::LoadInterleaved3(d, row + 3 * j, a, b, c);
      hn::StoreU(a, d, phases + j);
      hn::StoreU(b, d, phases + phase_row + j);
      hn::StoreU(c, d, phases + 2 * phase_row + j);
    }
  } else if (stride == 4) {
    for (; j + n <= count; j += n) {
      hn::LoadInterleaved4(d, row + 4 * j, a, b, c, e);
      hn::StoreU(a, d, phases + j);
      hn::StoreU(b, d, phases + phase_row + j);
      hn::StoreU(c, d, phases + 2 * phase_row + j);
      hn::StoreU(e, d, phases + 3 * phase_row + j);
    }
  }
  for (int64_t f = 0; f < stride; ++f) {
    for (int64_t i = j; i < count; ++i) phases[f * phase_row + i] = row[i * stride + f];
  }
}

// In double, where fp32 sums overflow: one pass for the mean, one for the centred squares.
inline Moments moments_in_double(const float* row, int64_t count) {
  double sum = 0, m2 = 0;
  for (int64_t i = 0; i < count; ++i) sum += row[i];
  const double mean = sum / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) m2 += (row[i] - mean) * (row[i] - mean);
  return {static_cast<double>(count), mean, m2};
}

// Mean first, then the centred squares. The deviations are summed as well, which takes out the rounding of the mean.
inline constexpr double kSmallestSquares = 1e-30;

inline Moments row_moments(const float* row, int64_t count) {
  if (count <= 0) return {};
  const F32 d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / n * n;
  const auto tail_mask = hn::FirstN(d, static_cast<size_t>(count - whole));
  HWY_ALIGN float tail_buffer[hn::MaxLanes(F32())] = {};
  std::memcpy(tail_buffer, row + whole, static_cast<size_t>(count - whole) * sizeof(float));
  const VF tail = hn::Load(d, tail_buffer);

  VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * n <= whole; i += 4 * n) {
    s0 = hn::Add(s0, hn::LoadU(d, row + i));
    s1 = hn::Add(s1, hn::LoadU(d, row + i + n));
    s2 = hn::Add(s2, hn::LoadU(d, row + i + 2 * n));
    s3 = hn::Add(s3, hn::LoadU(d, row + i + 3 * n));
  }
  for (; i < whole; i += n) s0 = hn::Add(s0, hn::LoadU(d, row + i));
  s1 = hn::Add(s1, tail);
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  const float mean = total / static_cast<float>(count);

  const VF centre = hn::Set(d, mean);
  VF d0 = hn::Zero(d), d1 = d0, q0 = d0, q1 = d0;
  for (i = 0; i + 2 * n <= whole; i += 2 * n) {
    const VF a = hn::Sub(hn::LoadU(d, row + i), centre), b = hn::Sub(hn::LoadU(d, row + i + n), centre);
    d0 = hn::Add(d0, a);
    d1 = hn::Add(d1, b);
    q0 = hn::MulAdd(a, a, q0);
    q1 = hn::MulAdd(b, b, q1);
  }
  for (; i < whole; i += n) {
    const VF a = hn::Sub(hn::LoadU(d, row + i), centre);
    d0 = hn::Add(d0, a);
    q0 = hn::MulAdd(a, a, q0);
  }
  const VF a = hn::IfThenElseZero(tail_mask, hn::Sub(tail, centre));
  d1 = hn::Add(d1, a);
  q1 = hn::MulAdd(a, a, q1);
  const double deviation = hn::GetLane(hn::SumOfLanes(d, hn::Add(d0, d1)));
  const double squares = hn::GetLane(hn::SumOfLanes(d, hn::Add(q0, q1)));
  // fp32 squares may have overflowed or vanished; the second only matters to an eps as small.
  if (!std::isfinite(squares) || !std::isfinite(mean) || squares < kSmallestSquares)
    return moments_in_double(row, count);
  const double shift = deviation / static_cast<double>(count);
  const double m2 = squares - deviation * shift;
  return {static_cast<double>(count), static_cast<double>(mean) + shift, m2 > 0 ? m2 : 0.0};
}

inline void column_moments(const float* const* columns, int64_t column_count, int64_t count, double* means,
                           double* products) {
  constexpr int64_t kPiece = 128;  // positions whose deviations stay in the first-level cache
  const hn::ScalableTag<double> d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN double deviations[kMostMomentColumns][kPiece];
  for (int64_t i = 0; i < column_count; ++i) {
    double sum = 0;
    for (int64_t q = 0; q < count; ++q) sum += static_cast<double>(columns[i][q]);
    means[i] = sum / static_cast<double>(count);
  }
  std::fill(products, products + column_count * (column_count + 1) / 2, 0.0);
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t piece = std::min(kPiece, count - begin);
    for (int64_t i = 0; i < column_count; ++i) {
      for (int64_t q = 0; q < kPiece; ++q) {
        deviations[i][q] = q < piece ? static_cast<double>(columns[i][begin + q]) - means[i] : 0.0;
      }
    }
    int64_t at = 0;
    for (int64_t i = 0; i < column_count; ++i) {
      for (int64_t j = i; j < column_count; ++j) {
        auto even = hn::Zero(d), odd = hn::Zero(d);
        int64_t q = 0;
        for (; q + 2 * n <= kPiece; q += 2 * n) {
          even = hn::MulAdd(hn::Load(d, deviations[i] + q), hn::Load(d, deviations[j] + q), even);
          odd = hn::MulAdd(hn::Load(d, deviations[i] + q + n), hn::Load(d, deviations[j] + q + n), odd);
        }
        products[at++] += hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
      }
    }
  }
}

// One functor per pointwise line of the operation table; slopes arrive as the parameter.
#define CONVNORM_FUNCTOR_pointwise(E, name)                                                  \
  struct Op_##E {                                                                            \
    VF param;                                                                                \
    CONVNORM_INLINE VF operator()(VF x) const { return Formulas<SimdMath>::name(x, param); } \
  };
#define CONVNORM_FUNCTOR_slope CONVNORM_FUNCTOR_pointwise
#define CONVNORM_FUNCTOR_film(E, name)
#define CONVNORM_FUNCTOR_add(E, name)
#define CONVNORM_FUNCTOR_glu(E, name)
#define CONVNORM_OP(E, name, kind, parameter, formula) CONVNORM_FUNCTOR_##kind(E, name)
#include "epilogue/ops.def"
#undef CONVNORM_OP

// Calls use(functor) for a pointwise operation, use(Identity) for none.
template <class Use>
CONVNORM_INLINE void with_pointwise(convnorm_op op, float param, const Use& use) {
  switch (op) {
#define CONVNORM_CASE_pointwise(E) \
  case CONVNORM_##E:               \
    return use(Op_##E{SimdMath::set(param)});
#define CONVNORM_CASE_slope CONVNORM_CASE_pointwise
#define CONVNORM_CASE_film(E)
#define CONVNORM_CASE_add(E)
#define CONVNORM_CASE_glu(E)
#define CONVNORM_OP(E, name, kind, parameter, formula) CONVNORM_CASE_##kind(E)
#include "epilogue/ops.def"
#undef CONVNORM_OP
    default:
      return use(Identity());
  }
}

struct PointwiseRow {
  float* row;
  int64_t count;
  template <class Op>
  CONVNORM_INLINE void operator()(const Op& op) const {
    map_row(row, row, count, op);
  }
};

inline void pointwise(float* row, int64_t count, convnorm_op op, float param) {
  with_pointwise(op, param, PointwiseRow{row, count});
}

// (z - mean) * scale + shift, the mean in two parts: their sum is exact to 48 bits, and one element per group gives
// exactly `shift`.
template <class Op>
struct NormThen {
  VF mean_high, mean_low, scale, shift;
  Op op;
  CONVNORM_INLINE VF operator()(VF z) const {
    return op(hn::MulAdd(hn::Sub(hn::Sub(z, mean_high), mean_low), scale, shift));
  }
};

struct NormRowThen {
  const NormRow& n;
  template <class F>
  CONVNORM_INLINE void write(const F& f) const {
    if (n.stream) return stream_row(n.z, n.out, n.count, f);
    map_row(n.z, n.out, n.count, f);
  }
  template <class Op>
  CONVNORM_INLINE void operator()(const Op& op) const {
    if (!n.normalise) return write(op);
    write(NormThen<Op>{SimdMath::set(n.mean_high), SimdMath::set(n.mean_low), SimdMath::set(n.scale),
                       SimdMath::set(n.shift), op});
  }
};

inline void norm_row(const NormRow& n, convnorm_op op, float param) { with_pointwise(op, param, NormRowThen{n}); }

struct Film {
  VF scale, shift;
  CONVNORM_INLINE VF operator()(VF x) const { return hn::MulAdd(x, scale, shift); }
};

inline void film(float* row, int64_t count, float scale, float shift) {
  map_row(row, row, count, Film{SimdMath::set(scale), SimdMath::set(shift)});
}

// a[i] = f(a[i], b[i])
template <class F>
CONVNORM_INLINE void combine_rows(float* a, const float* b, int64_t count, const F& f) {
  const F32 d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + n <= count; i += n) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, a + i);
  if (i < count) {
    const size_t bytes = static_cast<size_t>(count - i) * sizeof(float);
    HWY_ALIGN float ta[hn::MaxLanes(F32())] = {}, tb[hn::MaxLanes(F32())] = {};
    std::memcpy(ta, a + i, bytes);
    std::memcpy(tb, b + i, bytes);
    hn::Store(f(hn::Load(d, ta), hn::Load(d, tb)), d, ta);
    std::memcpy(a + i, ta, bytes);
  }
}

struct Sum {
  CONVNORM_INLINE VF operator()(VF a, VF b) const { return hn::Add(a, b); }
};
struct Gate {
  CONVNORM_INLINE VF operator()(VF a, VF b) const { return hn::Mul(a, SimdMath::sigmoid(b)); }
};
inline void add(float* row, const float* other, int64_t count) { combine_rows(row, other, count, Sum()); }
inline void glu(float* a, const float* b, int64_t count) { combine_rows(a, b, count, Gate()); }

// Twelve independent chains; the compiler may not fold them, because their start is not known to it.
inline double fma_chains(int64_t rounds) {
  const F32 d;
  VF a[12];
  volatile float opaque = 1.0f;
  const float seed = opaque;
#pragma GCC unroll 16
  for (int i = 0; i < 12; ++i) a[i] = hn::Set(d, seed + static_cast<float>(i));
  const VF x = hn::Set(d, seed * 0.999f), y = hn::Set(d, seed * 1e-3f);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < 12; ++i) a[i] = hn::MulAdd(a[i], x, y);
  }
  VF sum = a[0];
#pragma GCC unroll 16
  for (int i = 1; i < 12; ++i) sum = hn::Add(sum, a[i]);
  volatile float sink = hn::GetLane(hn::SumOfLanes(d, sum));
  (void)sink;
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

inline void copy(const float* from, float* to, int64_t count) { stream_row(from, to, count, Identity()); }

}  // namespace convnorm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // CONVNORM_ROWS_INL_H_
