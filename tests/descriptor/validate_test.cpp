#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "descriptor/problem.hpp"

namespace convnorm {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

Problem valid() { return parse_problem("n=2,c=4,l=20,o=8,k=3,p=1,g=4"); }

struct Rule {
  const char* name;
  std::function<void(Problem&)> break_it;
  std::vector<const char*> words;  // that the message must hold: the value at fault and the way out
};

void PrintTo(const Rule& rule, std::ostream* stream) { *stream << rule.name; }

std::vector<Rule> rules() {
  return {
      {"negative_n", [](Problem& p) { p.n = -1; }, {"n=-1", "at least 0"}},
      {"zero_c", [](Problem& p) { p.c = 0; }, {"c=0", "at least 1"}},
      {"negative_l", [](Problem& p) { p.l = -5; }, {"l=-5", "at least 0"}},
      {"zero_o", [](Problem& p) { p.o = 0; }, {"o=0", "at least 1"}},
      {"zero_k", [](Problem& p) { p.k = 0; }, {"k=0", "at least 1"}},
      {"B031_zero_stride", [](Problem& p) { p.stride = 0; }, {"s=0", "at least 1"}},
      {"B031_negative_stride", [](Problem& p) { p.stride = -1; }, {"s=-1", "at least 1"}},
      {"B031_zero_dilation", [](Problem& p) { p.dilation = 0; }, {"d=0", "at least 1"}},
      {"B031_negative_dilation", [](Problem& p) { p.dilation = -1; }, {"d=-1", "at least 1"}},
      {"B031_negative_left_padding", [](Problem& p) { p.pad_left = -1; }, {"left", "p=-1", "at least 0"}},
      {"B031_negative_right_padding", [](Problem& p) { p.pad_right = -1; }, {"right", "p=-1", "at least 0"}},
      {"B032_zero_conv_groups", [](Problem& p) { p.conv_groups = 0; }, {"cg=0", "at least 1"}},
      {"B032_conv_groups_3_of_4", [](Problem& p) { p.conv_groups = 3; }, {"cg=3", "c=4", "o=8", "2 or 4"}},
      {"conv_groups_divide_only_o", [](Problem& p) { p.conv_groups = 8; }, {"cg=8", "is 4"}},
      {"B029_negative_groups", [](Problem& p) { p.groups = -4; }, {"g=-4", "at least 0"}},
      {"B029_groups_above_channels", [](Problem& p) { p.groups = 16; }, {"g=16", "o=8", "is 8"}},
      {"B030_groups_4_of_6", [](Problem& p) { p.o = 6; }, {"g=4", "o=6", "3 or 6"}},
      {"huge_prime_channels_answer_at_once",
       [](Problem& p) { p.o = 2305843009213693951, p.groups = 1 << 30; },
       {"g=1073741824", "1 or 2305843009213693951"}},
      {"B035_kernel_longer_than_input",
       [](Problem& p) { p.l = 2, p.stride = 2, p.pad_left = p.pad_right = 0; },
       {"padded length 2", "effective kernel 3"}},
      {"empty_input_without_padding", [](Problem& p) { p.l = 0, p.pad_left = p.pad_right = 0; }, {"padded length 0"}},
      {"reflect_as_wide_as_the_input",
       [](Problem& p) { p.pad = CONVNORM_REFLECT, p.l = 3, p.pad_left = 3; },
       {"l=3", "p=3:1"}},
      {"reflect_of_nothing", [](Problem& p) { p.pad = CONVNORM_REFLECT, p.l = 0, p.k = 1; }, {"reflect", "l=0"}},
      {"replicate_of_nothing", [](Problem& p) { p.pad = CONVNORM_REPLICATE, p.l = 0, p.k = 1; }, {"replicate", "l=0"}},
      {"zero_eps", [](Problem& p) { p.eps = 0; }, {"eps=0", "positive"}},
      {"negative_eps", [](Problem& p) { p.eps = -1e-5; }, {"eps=-1e-5"}},
      {"nan_eps", [](Problem& p) { p.eps = NAN; }, {"eps=nan"}},
      {"infinite_eps", [](Problem& p) { p.eps = HUGE_VAL; }, {"eps=inf"}},
      {"bias_2", [](Problem& p) { p.bias = 2; }, {"bias=2"}},
      {"affine_minus_1", [](Problem& p) { p.affine = -1; }, {"affine=-1"}},
      {"lengths_7", [](Problem& p) { p.lengths = 7; }, {"lengths=7"}},
      {"pad_out_of_range", [](Problem& p) { p.pad = static_cast<convnorm_padding>(3); }, {"pad", "3", "replicate"}},
      {"layout_out_of_range", [](Problem& p) { p.layout = static_cast<convnorm_layout>(2); }, {"layout", "2"}},
      {"dtype_out_of_range", [](Problem& p) { p.dtype = static_cast<convnorm_dtype>(-1); }, {"dtype", "-1"}},
      {"precision_out_of_range",
       [](Problem& p) { p.precision = static_cast<convnorm_precision>(9); },
       {"precision", "9"}},
      {"silu_before_the_norm", [](Problem& p) { p.pre.op = CONVNORM_SILU; }, {"pre=silu", "prelu"}},
      {"pre_out_of_range", [](Problem& p) { p.pre.op = static_cast<convnorm_op>(77); }, {"pre", "77"}},
      {"negative_post_count", [](Problem& p) { p.post_count = -1; }, {"post", "-1"}},
      {"too_many_post", [](Problem& p) { p.post_count = 9; }, {"post", "9", "8"}},
      {"none_in_post", [](Problem& p) { p.post_count = 1; }, {"post[0]", "0"}},
      {"post_out_of_range",
       [](Problem& p) { p.post_count = 1, p.post[0].op = static_cast<convnorm_op>(99); },
       {"post[0]", "99"}},
      {"two_films",
       [](Problem& p) { p.post_count = 3, p.post[0].op = p.post[2].op = CONVNORM_FILM, p.post[1].op = CONVNORM_RELU; },
       {"film twice"}},
      {"two_glus", [](Problem& p) { p.post_count = 2, p.post[0].op = p.post[1].op = CONVNORM_GLU; }, {"glu twice"}},
      {"infinite_parameter",
       [](Problem& p) {
         p.post_count = 1, p.post[0] = {CONVNORM_ELU, HUGE_VAL};
       },
       {"elu", "finite"}},
      {"glu_of_odd_channels",
       [](Problem& p) { p.o = 7, p.groups = 7, p.post_count = 1, p.post[0].op = CONVNORM_GLU; },
       {"glu", "o=7"}},
      {"add_before_glu",
       [](Problem& p) { p.post_count = 2, p.post[0].op = CONVNORM_ADD, p.post[1].op = CONVNORM_GLU; },
       {"add", "before glu"}},
      {"overflow_of_x", [](Problem& p) { p.n = 1 << 30, p.c = 1 << 20, p.l = 1 << 20; }, {"x", "n=1073741824"}},
      {"overflow_of_x_for_an_empty_batch", [](Problem& p) { p.n = 0, p.c = 1LL << 40, p.l = 1LL << 40; }, {"x", "l="}},
      {"overflow_of_w", [](Problem& p) { p.c = 1LL << 40, p.o = 1LL << 40; }, {"w", "o="}},
      {"overflow_of_y",
       [](Problem& p) { p.o = 1LL << 40, p.l = 1LL << 40, p.c = 1, p.k = 1; },
       {"convolution", "L_out="}},
      {"overflow_of_the_kernel", [](Problem& p) { p.k = kHuge, p.dilation = 3; }, {"effective kernel"}},
      {"overflow_of_the_padding", [](Problem& p) { p.pad_left = p.pad_right = kHuge; }, {"padded length"}},
  };
}

class BrokenRule : public testing::TestWithParam<Rule> {};

TEST_P(BrokenRule, IsNamed) {
  Problem problem = valid();
  GetParam().break_it(problem);
  try {
    validate(problem);
    FAIL() << "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), CONVNORM_INVALID_ARGUMENT);
    for (const char* word : GetParam().words) EXPECT_THAT(failure.what(), testing::HasSubstr(word));
    EXPECT_LT(std::string_view(failure.what()).size(), 300u);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenRule, testing::ValuesIn(rules()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Validate, AcceptsTheEdges) {
  for (const char* line : {
           "n=0,c=4,l=20,o=8,k=3,p=1,g=4",                           // B037: an empty batch
           "n=2,c=4,l=0,o=32,k=2,p=1,g=8",                           // B036: an empty input with padding
           "n=1,c=1,l=1,o=1,k=1,g=1",                                // one element
           "n=1,c=1,l=4,o=1,k=9,p=3,pad=reflect,g=1",                // reflection of all but one
           "n=1,c=1,l=1,o=1,k=9,p=100,pad=replicate,g=0",            // padding far wider than the input
           "n=131072,c=2,l=1537,o=2,k=3,s=2,cg=2,g=2",               // B066
           "n=1,c=128,l=19353600,o=128,k=1,cg=128,g=32,dtype=bf16",  // B062
           "n=1,c=8,l=16,o=8,k=1,g=0,post=glu+film+add+prelu",
       }) {
    EXPECT_NO_THROW(parse_problem(line)) << line;
  }
}

TEST(Validate, Lengths) {
  const auto check = [](const char* line, std::vector<int64_t> lengths) {
    try {
      validate_lengths(parse_problem(line), lengths.data());
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  const char* zeros = "n=3,c=1,l=10,o=1,k=3,p=1,g=1,lengths=1";
  EXPECT_EQ(check(zeros, {10, 0, 5}), "");
  EXPECT_THAT(check(zeros, {10, -1, 5}), testing::HasSubstr("lengths[1]=-1"));
  EXPECT_THAT(check(zeros, {10, 0, 11}),
              testing::AllOf(testing::HasSubstr("lengths[2]=11"), testing::HasSubstr("l=10")));
  const char* reflect = "n=1,c=1,l=10,o=1,k=3,p=2,pad=reflect,g=1,lengths=1";
  EXPECT_EQ(check(reflect, {3}), "");
  EXPECT_THAT(check(reflect, {2}), testing::HasSubstr("lengths[0]=2"));
  const char* replicate = "n=1,c=1,l=10,o=1,k=3,p=2,pad=replicate,g=1,lengths=1";
  EXPECT_EQ(check(replicate, {1}), "");
  EXPECT_THAT(check(replicate, {0}), testing::HasSubstr("lengths[0]=0"));
  // Where the kernel does not fit there is no output, so nothing is padded.
  EXPECT_EQ(check("n=1,c=1,l=10,o=1,k=7,p=2,pad=reflect,g=1,lengths=1", {2}), "");
}

TEST(Sizes, FollowFromTheProblem) {
  const Sizes sizes(parse_problem("n=2,c=6,l=20,o=12,k=3,s=2,d=2,p=1:0,cg=2,g=4,post=glu"));
  EXPECT_EQ(sizes.l_out, 9);
  EXPECT_EQ(sizes.c_y, 6);
  EXPECT_EQ(sizes.c_per_conv_group, 3);
  EXPECT_EQ(sizes.o_per_conv_group, 6);
  EXPECT_EQ(sizes.o_per_norm_group, 3);
  EXPECT_EQ(sizes.k_span, 5);
  EXPECT_EQ(sizes.x_elements, 240);
  EXPECT_EQ(sizes.w_elements, 108);
  EXPECT_EQ(sizes.y_elements, 108);
  EXPECT_EQ(sizes.z_elements, 216);
  EXPECT_EQ(sizes.flops, 2.0 * 216 * 9);
}

}  // namespace
}  // namespace convnorm
