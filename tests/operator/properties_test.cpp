// Random problems over the whole grammar. A failure is shrunk to a small problem and printed as its line.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "epilogue/ops.hpp"
#include "support/runner.hpp"

namespace convnorm::test {
namespace {

// Sizes that tiles, panels and vectors do not divide. Smaller ones first: shrinking goes towards the front.
constexpr int64_t kSizes[] = {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 63, 65};
constexpr int64_t kLengths[] = {1, 2, 3, 4, 5, 7, 13, 16, 17, 31, 33, 64, 65, 101, 257, 512, 513, 1100};
constexpr int64_t kSmallLengths[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17};
constexpr int64_t kTaps[] = {1, 2, 3, 4, 5, 7, 8, 17, 31};
constexpr int64_t kStrides[] = {1, 2, 3, 4, 5, 8, 9};
constexpr int64_t kDilations[] = {1, 2, 3, 8, 16};
constexpr double kEpsilons[] = {1e-5, 1e-3, 1e-8, 1e-12};
constexpr double kMostProducts = 2e6;  // of one problem: each is computed some fifty times

template <class T, size_t kCount>
T pick(const T (&values)[kCount]) {
  return values[*rc::gen::inRange<size_t>(0, kCount)];
}

// Any divisor as likely as the others; 1 comes first.
int64_t divisor_of(int64_t whole) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= whole; ++d) {
    if (whole % d == 0) divisors.push_back(d);
  }
  return divisors[static_cast<size_t>(*rc::gen::inRange<int>(0, static_cast<int>(divisors.size())))];
}

bool rarely(int one_in) { return *rc::gen::inRange(0, one_in) == one_in - 1; }

void pick_post(Problem& p) {
  const int count = *rc::gen::inRange(0, 4);
  bool residual_seen = false;
  for (int i = 0; i < count; ++i) {
    const OpInfo& info = kOps[*rc::gen::inRange<int>(0, std::size(kOps))];
    const bool once = info.kind != OpKind::pointwise;
    if (once && has_post(p, info.op)) continue;
    if (info.op == CONVNORM_GLU && (p.o % 2 != 0 || residual_seen)) continue;
    residual_seen |= info.op == CONVNORM_ADD;
    p.post[p.post_count++] = {info.op, info.takes_param() ? pick({0.2, 1.0, -0.5, 0.01}) : 0};
  }
}

// Whatever is drawn is a valid problem, so that shrinking never leaves the grammar.
Problem draw_problem() {
  const bool small_l = rarely(3);                                 // few positions and wide channels
  const bool raw_audio = !small_l && rarely(4);                   // many channels from few inputs
  const bool many_samples = !small_l && !raw_audio && rarely(5);  // more than a GPU has multiprocessors
  Problem p = default_problem();
  p.n = rarely(12) ? 0 : pick({1, 2, 3});
  p.o = pick(kSizes), p.c = pick(kSizes);
  if (raw_audio) {
    p.c = pick({1, 2}), p.o = pick({64, 65, 96});
  } else if (rarely(4)) {
    p.conv_groups = p.c = p.o;  // depthwise
  } else if (rarely(3)) {
    const int64_t groups = pick({2, 3, 4});
    p.conv_groups = groups, p.c *= groups, p.o *= groups;
  }
  if (small_l) {
    p.l = pick(kSmallLengths);
    p.o = std::max<int64_t>(p.o, 16 * p.conv_groups) / p.conv_groups * p.conv_groups;
  } else {
    p.l = pick(kLengths);
  }
  if (many_samples) {
    p.n = 160, p.l = pick({80, 97, 112});
    p.conv_groups = 1, p.c = pick({1, 2, 3}), p.o = pick({4, 8, 16});
  }
  p.k = raw_audio ? pick({2, 3, 4, 5, 8}) : pick(kTaps);
  p.stride = rarely(2) ? pick(kStrides) : 1;
  p.dilation = rarely(2) ? pick(kDilations) : 1;
  p.pad = static_cast<convnorm_padding>(*rc::gen::inRange(0, 3));
  const int64_t span = p.dilation * (p.k - 1) + 1;
  p.pad_left = *rc::gen::inRange<int64_t>(0, std::min<int64_t>(span, 40) + 1);
  p.pad_right = rarely(2) ? *rc::gen::inRange<int64_t>(0, std::min<int64_t>(span, 40) + 1) : p.pad_left;
  if (p.pad == CONVNORM_REFLECT) {
    p.pad_left = std::min(p.pad_left, p.l - 1), p.pad_right = std::min(p.pad_right, p.l - 1);
  }
  const int64_t room = p.l + p.pad_left + p.pad_right;
  if (room < span) p.dilation = 1;
  p.k = std::min(p.k, (room - 1) / p.dilation + 1);
  p.groups = rarely(6) ? 0 : divisor_of(p.o);
  p.eps = pick(kEpsilons);
  p.bias = *rc::gen::inRange(0, 2), p.affine = *rc::gen::inRange(0, 2);
  p.lengths = rarely(4);
  p.layout = rarely(3) ? CONVNORM_NLC : CONVNORM_NCL;
  p.dtype = static_cast<convnorm_dtype>(*rc::gen::inRange(0, 3));
  if (!raw_audio) p.pre.op = pick({CONVNORM_NONE, CONVNORM_NONE, CONVNORM_RELU, CONVNORM_PRELU});
  pick_post(p);
  // Fewer channels rather than none of the other options.
  while (Sizes(p).flops / 2 > kMostProducts && p.c / p.conv_groups > 1) p.c = p.conv_groups * (p.c / p.conv_groups / 2);
  if (Sizes(p).flops / 2 > kMostProducts) p.n = std::min<int64_t>(p.n, 1);
  return p;
}

// How RapidCheck prints a counterexample.
struct Drawn {
  Inputs inputs;
  Fill fill;
  uint64_t seed;
};
void showValue(const Drawn& drawn, std::ostream& out) {
  out << print_problem(drawn.inputs.problem) << " with fill " << fill_name(drawn.fill) << ", seed " << drawn.seed
      << ", parameters as " << dtype_name(drawn.inputs.param_dtype);
}

Drawn draw(const Problem& p, Fill fill) {
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  return {make_inputs(p, fill, seed, rarely(3) ? p.dtype : CONVNORM_F32), fill, seed};
}

// From the first trial on at full size: RapidCheck would start with the smallest choices.
template <class Draw>
Inputs drawn(const Draw& draw_one) {
  return (*rc::gen::resize(rc::kNominalSize, rc::gen::exec(draw_one))).inputs;
}

Inputs any_inputs() {
  return drawn([] { return draw(draw_problem(), pick(kFills)); });
}

Inputs exact_inputs() {
  return drawn([] {
    Problem p = draw_problem();
    p.groups = 0, p.post_count = 0;
    if (p.pre.op == CONVNORM_PRELU) p.pre.op = CONVNORM_RELU;
    if (rarely(2)) p.post[p.post_count++] = {CONVNORM_ADD, 0};
    return draw(p, Fill::integers);
  });
}

void must_be_empty(const std::string& fault) {
  if (!fault.empty()) RC_FAIL(fault);
}

TEST(Properties, EveryPathAgreesWithTheTruth) {
  std::vector<std::string> taken;
  EXPECT_TRUE(rc::check("every path agrees with the truth",
                        [&] { must_be_empty(check_every_path(any_inputs(), &taken, *rc::gen::inRange(0, 4))); }));
  for (const std::string& path : paths()) {
    EXPECT_NE(std::find(taken.begin(), taken.end(), path), taken.end()) << path << " accepted none of the problems";
  }
}

RC_GTEST_PROP(Properties, PathsThreadsAndPoolsGiveTheSameBits, ()) { must_be_empty(check_same_bits(any_inputs())); }

// Integers, no norm, and only ops that are exact on them: then the result is exact too, in any order of summation.
RC_GTEST_PROP(Properties, ConvolutionOfIntegersIsExact, ()) {
  const Inputs in = exact_inputs();
  const Expected expected(in);
  RC_ASSERT(expected.error == 0);
  must_be_empty(
      on_every_path(in, [&](const Outcome& o) { return compare(in, expected, o.y, Arithmetic::double_precision); }));
}

}  // namespace
}  // namespace convnorm::test
