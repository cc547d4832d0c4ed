#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>

#include "descriptor/text.hpp"
#include "epilogue/ops.hpp"

namespace convnorm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kDefault = "n=16,c=128,l=1024,o=256,k=3,p=1,g=32";

std::string failure(std::string_view line, convnorm_status status) {
  try {
    parse_problem(line);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), status) << failure.what();
    return failure.what();
  }
  ADD_FAILURE() << line << " was accepted";
  return "";
}

std::string unreadable(std::string_view line) { return failure(line, CONVNORM_PARSE_ERROR); }
std::string with(const std::string& tail) { return kDefault + ("," + tail); }
std::string reprinted(std::string_view line) { return print_problem(parse_problem(line)); }

TEST(Line, PrintsCanonically) {
  EXPECT_EQ(reprinted(kDefault), kDefault);
  EXPECT_EQ(reprinted("g=32,o=256,n=16,p=1:1,l=1024,k=3,c=128,s=1,d=1,pad=zeros,cg=1,bias=0,affine=1,eps=0.00001,"
                      "pre=none,post=none,lengths=0,layout=ncl,dtype=f32,precision=high"),
            kDefault);
  EXPECT_EQ(reprinted(with("post=leaky_relu(0.010)+elu(1.0)+silu")), with("post=leaky_relu+elu+silu"));
  EXPECT_EQ(reprinted(with("post=leaky_relu(0.2)+elu(1e+3)")), with("post=leaky_relu(0.2)+elu(1000)"));
  EXPECT_EQ(reprinted(with("eps=1e-08,affine=0")), with("affine=0,eps=1e-8"));
  const char* everything =
      "n=2,c=8,l=64,o=16,k=4,s=2,d=3,p=4:1,pad=reflect,cg=4,g=8,bias=1,affine=0,eps=0.001,pre=prelu,"
      "post=mish+film+glu+add,lengths=1,layout=nlc,dtype=bf16,precision=medium";
  EXPECT_EQ(reprinted(everything), everything);
}

TEST(Line, WithoutANormAffineAndEpsHaveNoMeaning) {
  EXPECT_EQ(reprinted("n=1,c=1,l=8,o=1,k=1,g=0,affine=0,eps=0.5"), "n=1,c=1,l=8,o=1,k=1,g=0");
}

TEST(Line, B027_ResolvesNamedPadding) {
  EXPECT_EQ(reprinted("n=1,c=1,l=8,o=1,k=4,p=same,g=1"), "n=1,c=1,l=8,o=1,k=4,p=1:2,g=1");
  EXPECT_EQ(reprinted("n=1,c=1,l=8,o=1,k=3,d=2,p=same,g=1"), "n=1,c=1,l=8,o=1,k=3,d=2,p=2,g=1");
  EXPECT_EQ(reprinted("n=1,c=1,l=8,o=1,k=3,d=2,p=causal,g=1"), "n=1,c=1,l=8,o=1,k=3,d=2,p=4:0,g=1");
  EXPECT_EQ(reprinted("p=causal,n=1,c=1,l=8,o=1,k=3,s=2,g=1"), "n=1,c=1,l=8,o=1,k=3,s=2,p=2:0,g=1");
  EXPECT_THAT(failure("n=1,c=1,l=8,o=1,k=3,s=2,p=same,g=1", CONVNORM_INVALID_ARGUMENT),
              AllOf(HasSubstr("s=2"), HasSubstr("p=1:1")));
  // Left to the rule that names the value at fault.
  EXPECT_THAT(failure("n=1,c=1,l=8,o=1,k=0,p=same,g=1", CONVNORM_INVALID_ARGUMENT), HasSubstr("k=0"));
  EXPECT_THAT(failure("n=1,c=1,l=8,o=1,k=4000000000,d=4000000000,p=causal,g=1", CONVNORM_INVALID_ARGUMENT),
              HasSubstr("overflows"));
}

TEST(Line, SuggestsWhatWasMeant) {
  EXPECT_THAT(unreadable(with("groups=3")), HasSubstr("did you mean g?"));
  EXPECT_THAT(unreadable(with("stirde=3")), HasSubstr("did you mean s?"));
  EXPECT_THAT(unreadable(with("dtyp=f16")), HasSubstr("did you mean dtype?"));
  EXPECT_THAT(unreadable(with("post=gelu_than")), HasSubstr("did you mean gelu_tanh?"));
  EXPECT_THAT(unreadable(with("dtype=fp16")), AllOf(HasSubstr("did you mean f16?"), HasSubstr("f32, f16, bf16")));
  EXPECT_THAT(unreadable(with("precision=fast")), Not(HasSubstr("did you mean")));
}

TEST(Line, NamesWhatItCannotRead) {
  EXPECT_THAT(unreadable(""), HasSubstr("empty"));
  EXPECT_THAT(unreadable("n=1,l=4,g=1"), AllOf(HasSubstr("c (channels)"), HasSubstr("o ("), HasSubstr("k (")));
  EXPECT_THAT(unreadable(with("n=4")), HasSubstr("n is given twice"));
  EXPECT_THAT(unreadable(with("")), HasSubstr("position 38"));
  EXPECT_THAT(unreadable(with("s")), HasSubstr("\"s\""));
  EXPECT_THAT(unreadable(with("s=")), HasSubstr("\"s=\""));
  EXPECT_THAT(unreadable(with("=3")), HasSubstr("\"=3\""));
  EXPECT_THAT(unreadable(with("s=2 ")), HasSubstr("blank"));
  EXPECT_THAT(unreadable(" " + std::string(kDefault)), HasSubstr("position 1"));
  EXPECT_THAT(unreadable(with("s=2x")), HasSubstr("\"2x\" is not an integer"));
  EXPECT_THAT(unreadable(with("s=+2")), HasSubstr("not an integer"));
  EXPECT_THAT(unreadable(with("s=2.0")), HasSubstr("not an integer"));
  EXPECT_THAT(unreadable(with("d=9223372036854775808")), HasSubstr("out of the range"));
  EXPECT_THAT(unreadable(with("eps=1e999")), HasSubstr("out of the range"));
  EXPECT_THAT(unreadable(with("eps=1e-5e")), HasSubstr("not a number"));
  EXPECT_THAT(unreadable(with("bias=2")), HasSubstr("0 or 1"));
  EXPECT_THAT(unreadable(with("post=relu(0.1)")), HasSubstr("relu takes no parameter"));
  EXPECT_THAT(unreadable(with("post=elu(0.1")), HasSubstr("closing bracket"));
  EXPECT_THAT(unreadable(with("post=elu()")), HasSubstr("not a number"));
  EXPECT_THAT(unreadable(with("post=relu+")), HasSubstr("\"\" is not known"));
  EXPECT_THAT(unreadable(with("post=relu+none")), HasSubstr("\"none\" is not known"));
  EXPECT_THAT(unreadable(with("post=relu+relu+relu+relu+relu+relu+relu+relu+relu")), HasSubstr("more than 8"));
  EXPECT_THAT(unreadable("n=1,c=1,l=8,o=1,k=3,p=1:,g=1"), HasSubstr("not an integer"));
  EXPECT_THAT(unreadable("n=1,c=1,l=8,o=1,k=3,p=valid,g=1"), HasSubstr("same or causal"));
  EXPECT_THAT(unreadable(std::string(5000, 'n')), HasSubstr("4096"));
  EXPECT_THAT(unreadable(std::string("n=1\0,c=1", 8)), HasSubstr("code 0"));
}

TEST(Line, MessagesQuoteLongValuesShortly) { EXPECT_LT(unreadable(with("s=" + std::string(3000, '9'))).size(), 200u); }

TEST(Line, B031_NegativeNumbersAreReadAndThenRefused) {
  EXPECT_THAT(failure(with("s=-1"), CONVNORM_INVALID_ARGUMENT), HasSubstr("s=-1"));
  EXPECT_THAT(failure("n=1,c=1,l=8,o=1,k=3,p=-1,g=1", CONVNORM_INVALID_ARGUMENT), HasSubstr("p=-1"));
}

TEST(Line, EqualAndHashFollowTheCanonicalLine) {
  const Problem a = parse_problem(kDefault);
  Problem b = a;
  b.post[3] = {CONVNORM_ELU, 7};  // beyond post_count
  b.pre.param = 5;
  EXPECT_TRUE(equal(a, b));
  EXPECT_EQ(hash(a), hash(b));
  EXPECT_EQ(hash(a), 0x8640bdc069df49f5u) << "the hash of a problem must stay the same in all versions";
  b.stride = 2;
  EXPECT_FALSE(equal(a, b));
}

TEST(Text, ShortestNumbers) {
  EXPECT_EQ(shortest(1e-8), "1e-8");
  EXPECT_EQ(shortest(1e-5), "1e-5");
  EXPECT_EQ(shortest(0.001), "0.001");
  EXPECT_EQ(shortest(1e22), "1e22");
  EXPECT_EQ(shortest(1e100), "1e100");
  EXPECT_EQ(shortest(2), "2");
}

TEST(Text, QuotedStaysOneLine) {
  EXPECT_EQ(in_quotes("a\nb\x7f"), "\"a\\x0ab\\x7f\"");
  EXPECT_EQ(in_quotes(std::string(100, 'x')).size(), 45u);
}

rc::Gen<double> any_parameter() {
  return rc::gen::map(rc::gen::arbitrary<double>(), [](double x) { return std::isfinite(x) ? x : 0.5; });
}

// A valid problem over the whole grammar.
Problem any_problem() {
  Problem p = default_problem();
  const auto in = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
  const auto flag = [] { return *rc::gen::inRange<int32_t>(0, 2); };
  p.n = in(0, 5);
  p.k = in(1, 9);
  p.stride = in(1, 4);
  p.dilation = in(1, 4);
  p.pad = static_cast<convnorm_padding>(in(0, 2));
  p.pad_left = in(0, 12);
  p.pad_right = in(0, 12);
  p.l = std::max(in(0, 50), std::max(p.dilation * (p.k - 1) + 1 - p.pad_left - p.pad_right,
                                     p.pad == CONVNORM_ZEROS ? 0 : std::max(p.pad_left, p.pad_right) + 1));
  p.conv_groups = in(1, 4);
  p.groups = in(0, 4);
  p.c = p.conv_groups * in(1, 5);
  p.o = 2 * p.conv_groups * std::max<int64_t>(p.groups, 1) * in(1, 3);
  p.eps = std::max(std::fabs(*any_parameter()), 1e-300);
  p.layout = static_cast<convnorm_layout>(in(0, 1));
  p.dtype = static_cast<convnorm_dtype>(in(0, 2));
  p.precision = static_cast<convnorm_precision>(in(0, 2));
  p.bias = flag();
  p.affine = flag();
  p.lengths = flag();
  p.pre.op = *rc::gen::element(CONVNORM_NONE, CONVNORM_RELU, CONVNORM_PRELU);
  const auto wanted = in(0, CONVNORM_MAX_POST);
  for (int64_t i = 0; i < wanted; ++i) {
    const convnorm_stage stage{static_cast<convnorm_op>(in(1, CONVNORM_GLU)), *any_parameter()};
    const bool repeated = op_info(stage.op).kind != OpKind::pointwise && has_post(p, stage.op);
    if (repeated || (stage.op == CONVNORM_GLU && has_post(p, CONVNORM_ADD))) continue;
    p.post[p.post_count++] = stage;
  }
  return p;
}

RC_GTEST_PROP(LineProperty, PrintedProblemsReadBackTheSame, ()) {
  const Problem problem = any_problem();
  validate(problem);
  const std::string line = print_problem(problem);
  const Problem again = parse_problem(line);
  RC_ASSERT(print_problem(again) == line);
  RC_ASSERT(equal(problem, again));
  RC_ASSERT(hash(problem) == hash(again));
  RC_ASSERT(again.eps == (has_norm(problem) ? problem.eps : default_problem().eps));
  for (int i = 0; i < problem.post_count; ++i) {
    if (op_info(problem.post[i].op).takes_param()) RC_ASSERT(again.post[i].param == problem.post[i].param);
  }
}

RC_GTEST_PROP(LineProperty, TheOrderOfKeysDoesNotMatter, ()) {
  const std::string line = print_problem(any_problem());
  std::vector<std::string> pairs;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    pairs.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[*rc::gen::inRange<size_t>(0, i)]);
  RC_ASSERT(reprinted(fmt::format("{}", fmt::join(pairs, ","))) == line);
}

// Damaged lines are read or refused with a Failure; nothing else may come out.
RC_GTEST_PROP(LineProperty, DamagedLinesAreReadOrRefused, ()) {
  std::string line = print_problem(any_problem());
  const auto edits = *rc::gen::inRange<int>(1, 6);
  for (int i = 0; i < edits; ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, line.size());
    const auto length = *rc::gen::inRange<size_t>(0, 3);
    const auto piece = *rc::gen::element<std::string>("=", ",", "+", "(", ")", ":", "-", "9", "e", ".", "nan", "inf",
                                                      "glu", "same", "p=", " ", "0", "999999999999");
    line.replace(at, length, piece);
  }
  try {
    const Problem problem = parse_problem(line);
    RC_ASSERT(reprinted(print_problem(problem)) == print_problem(problem));
  } catch (const Failure& failure) {
    RC_ASSERT(failure.status() == CONVNORM_PARSE_ERROR || failure.status() == CONVNORM_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace convnorm
