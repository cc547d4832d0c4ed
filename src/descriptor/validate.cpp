// The rules of a problem, each stated once.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>

#include "descriptor/names.hpp"
#include "descriptor/text.hpp"
#include "epilogue/ops.hpp"

namespace convnorm {

namespace {

template <class... Args>
[[noreturn]] void invalid(fmt::format_string<Args...> format, Args&&... args) {
  fail(CONVNORM_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

using Factor = std::pair<const char*, int64_t>;

void check_smallest(const char* key, int64_t value, int64_t smallest) {
  if (value < smallest) invalid("{}={} must be at least {}", key, value, smallest);
}

void check_flag(const char* key, int32_t value) {
  if (value != 0 && value != 1) invalid("{}={} must be 0 or 1", key, value);
}

template <size_t kCount>
void check_choice(const char* key, int value, const std::array<std::string_view, kCount>& names) {
  if (value < 0 || value >= static_cast<int>(kCount)) {
    invalid("{} has the value {}, which is none of its enumeration: {}", key, value, fmt::join(names, ", "));
  }
}

// The divisor of `whole` nearest to `wish` on one side of it. The search is bounded: for a number so large that no
// divisor is near, the end of the range is an answer too.
int64_t divisor_near(int64_t whole, int64_t wish, int step) {
  constexpr int kLongestSearch = 10000;
  const int64_t end = step < 0 ? 1 : whole;
  int64_t candidate = std::clamp<int64_t>(wish, 1, whole);
  for (int i = 0; i < kLongestSearch && candidate != end; ++i, candidate += step) {
    if (whole % candidate == 0) return candidate;
  }
  return end;
}

std::string nearest_divisors(int64_t whole, int64_t wish) {
  const int64_t below = divisor_near(whole, wish, -1);
  const int64_t above = divisor_near(whole, wish, +1);
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

void check_divisors(const Problem& p) {
  if (p.c % p.conv_groups != 0 || p.o % p.conv_groups != 0) {
    invalid("cg={} must divide both c={} and o={}; the nearest that does is {}", p.conv_groups, p.c, p.o,
            nearest_divisors(std::gcd(p.c, p.o), p.conv_groups));
  }
  if (has_norm(p) && p.o % p.groups != 0) {
    invalid("g={} does not divide o={}; the nearest that does is {}", p.groups, p.o, nearest_divisors(p.o, p.groups));
  }
}

// Every tensor must be addressable in bytes. Eight per element covers all types, and intermediate values in double.
void check_product(const char* tensor, std::initializer_list<Factor> factors) {
  int64_t bytes = sizeof(double);
  for (const auto& [key, value] : factors) {
    if (!__builtin_mul_overflow(bytes, std::max<int64_t>(value, 1), &bytes)) continue;
    std::string product;
    for (const auto& [name, size] : factors)
      product += fmt::format("{}{}={}", product.empty() ? "" : " * ", name, size);
    invalid("{} would hold {} elements, more than 64-bit sizes can count; make one of them smaller", tensor, product);
  }
}

void check_output_length(const Problem& p) {
  int64_t span = 0;
  if (__builtin_mul_overflow(p.dilation, p.k - 1, &span) || __builtin_add_overflow(span, int64_t{1}, &span)) {
    invalid("the effective kernel d*(k-1)+1 with d={} and k={} overflows 64 bits; make one of them smaller", p.dilation,
            p.k);
  }
  int64_t padded = 0;
  if (__builtin_add_overflow(p.pad_left, p.pad_right, &padded) || __builtin_add_overflow(padded, p.l, &padded)) {
    invalid("the padded length of l={} and p={}:{} overflows 64 bits; make one of them smaller", p.l, p.pad_left,
            p.pad_right);
  }
  if (padded < span) {
    invalid(
        "there is no output: the padded length {} (l={}, p={}:{}) is shorter than the effective kernel {} (k={}, "
        "d={}); "
        "pad by {} more or use a smaller kernel",
        padded, p.l, p.pad_left, p.pad_right, span, p.k, p.dilation, span - padded);
  }
}

// Whether `length` inputs are enough to fill the padding from.
bool can_pad(const Problem& p, int64_t length) {
  const int64_t widest = std::max(p.pad_left, p.pad_right);
  if (widest == 0 || p.pad == CONVNORM_ZEROS) return true;
  return p.pad == CONVNORM_REFLECT ? widest < length : length >= 1;
}

void check_padding(const Problem& p) {
  if (can_pad(p, p.l)) return;
  if (p.pad == CONVNORM_REFLECT) {
    invalid("pad=reflect needs a padding smaller than l={}, not p={}:{}; pad less or use pad=zeros", p.l, p.pad_left,
            p.pad_right);
  }
  invalid("pad=replicate has nothing to repeat with l=0; use pad=zeros");
}

void check_pre(const Problem& p) {
  if (p.pre.op != CONVNORM_NONE && p.pre.op != CONVNORM_RELU && p.pre.op != CONVNORM_PRELU) {
    if (!is_op(p.pre.op)) invalid("pre has the value {}, which is no operation", static_cast<int>(p.pre.op));
    invalid("pre={} is not offered before the norm; use none, relu or prelu", op_info(p.pre.op).name);
  }
}

void check_post(const Problem& p) {
  if (p.post_count < 0 || p.post_count > CONVNORM_MAX_POST) {
    invalid("post has {} operations; from 0 to {} are allowed", p.post_count, static_cast<int>(CONVNORM_MAX_POST));
  }
  for (int i = 0; i < p.post_count; ++i) {
    const convnorm_stage& stage = p.post[i];
    if (!is_op(stage.op)) invalid("post[{}] has the value {}, which is no operation", i, static_cast<int>(stage.op));
    const OpInfo& info = op_info(stage.op);
    const auto same = [&](const convnorm_stage& other) { return other.op == stage.op; };
    if (info.kind != OpKind::pointwise && std::any_of(p.post, p.post + i, same)) {
      invalid("post holds {} twice, but there is one tensor for it at most; leave one out", info.name);
    }
    if (info.takes_param() && !(std::abs(stage.param) <= std::numeric_limits<float>::max())) {
      invalid("{}({}) in post needs a finite parameter that fp32 can hold", info.name, stage.param);
    }
    if (stage.op == CONVNORM_GLU) {
      if (p.o % 2 != 0) invalid("glu in post halves the channels, but o={} is odd; use an even o", p.o);
      if (std::any_of(p.post, p.post + i, [](const convnorm_stage& s) { return s.op == CONVNORM_ADD; })) {
        invalid(
            "add stands before glu in post, but the residual is shaped as y, with o/2={} channels; put add after glu",
            p.o / 2);
      }
    }
  }
}

}  // namespace

void validate(const Problem& p) {
  for (const auto& [key, value, smallest] : std::initializer_list<std::tuple<const char*, int64_t, int64_t>>{
           {"n", p.n, 0},
           {"c", p.c, 1},
           {"l", p.l, 0},
           {"o", p.o, 1},
           {"k", p.k, 1},
           {"s", p.stride, 1},
           {"d", p.dilation, 1},
           {"left padding p", p.pad_left, 0},
           {"right padding p", p.pad_right, 0},
           {"cg", p.conv_groups, 1},
           {"g", p.groups, 0},
       }) {
    check_smallest(key, value, smallest);
  }
  check_choice("pad", p.pad, kPadNames);
  check_choice("layout", p.layout, kLayoutNames);
  check_choice("dtype", p.dtype, kDtypeNames);
  check_choice("precision", p.precision, kPrecisionNames);
  check_flag("bias", p.bias);
  check_flag("affine", p.affine);
  check_flag("lengths", p.lengths);
  if (!(p.eps > 0) || !std::isfinite(p.eps)) invalid("eps={} must be positive and finite", shortest(p.eps));
  check_divisors(p);
  check_output_length(p);
  check_padding(p);
  check_pre(p);
  check_post(p);
  const int64_t l_out = output_length(p, p.l);
  check_product("x", {{"n", p.n}, {"c", p.c}, {"l", p.l}});
  check_product("w", {{"o", p.o}, {"c/cg", p.c / p.conv_groups}, {"k", p.k}});
  check_product("the convolution", {{"n", p.n}, {"o", p.o}, {"L_out", l_out}});
}

void validate_lengths(const Problem& p, const int64_t* lengths) {
  for (int64_t i = 0; i < p.n; ++i) {
    const int64_t length = lengths[i];
    if (length < 0 || length > p.l) invalid("lengths[{}]={} must lie between 0 and l={}", i, length, p.l);
    if (output_length(p, length) >= 1 && !can_pad(p, length)) {
      invalid("lengths[{}]={} is too short for pad={} with p={}:{}; leave the sample out or use pad=zeros", i, length,
              kPadNames[p.pad], p.pad_left, p.pad_right);
    }
  }
}

}  // namespace convnorm
