// What the planner of the moments kernels decides, on any machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>

#include "kernels/cuda/answers.hpp"
#include "kernels/cuda/limits.hpp"
#include "kernels/cuda/moments/plan.hpp"

namespace convnorm::cuda::test {
namespace {

using namespace moments;
using testing::HasSubstr;

std::variant<Config, std::string> plan(const std::string& line) {
  const Problem problem = parse_problem(line);
  return choose_config(problem, Sizes(problem), h200());
}

std::string refusal(const std::string& line) { return refusal_of(plan(line)); }

TEST(Moments, NumbersSquaresWithoutGaps) {
  for (const int columns : {1, 3, 4, 10, 15, 60, 64}) {
    const int along = squares_along(columns);
    std::set<int> seen;
    for (int i = 0; i <= columns; ++i) {
      for (int j = i; j <= columns; ++j) seen.insert(product_at(i, j, along));
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>((columns + 1) * (columns + 2) / 2)) << columns;
    EXPECT_LT(*seen.rbegin(), squares(columns) * kSide * kSide) << columns;
  }
}

// What the kernels rely on.
TEST(Moments, HoldsWhatTheKernelsAssume) {
  for (const int64_t n : {1, 3, 200}) {
    for (const int64_t l : {70, 515, 6001, 160000, 10'000'000}) {
      for (const int64_t o : {16, 24, 96, 512}) {
        for (const char* conv : {"c=1,k=10,s=5", "c=2,k=7,p=3", "c=20,k=3,s=3", "c=4,k=3,cg=2", "c=1,k=4,s=2,dtype=f16",
                                 "c=1,k=5,d=3,layout=nlc", "c=1,k=3,post=glu"}) {
          for (const int64_t groups : {int64_t{1}, o / 8, o}) {
            const Problem p = parse_problem(fmt::format("n={},l={},o={},g={},{}", n, l, o, groups, conv));
            const Sizes sizes(p);
            const auto answer = choose_config(p, sizes, h200());
            if (!std::holds_alternative<Config>(answer)) continue;
            const Config& c = std::get<Config>(answer);
            const std::string line = print_problem(p);
            const auto element = static_cast<int>(element_size(p.dtype));
            EXPECT_EQ(c.stream.words(), 0) << line;  // nothing is left to exchange
            EXPECT_GE(int64_t{c.slices} * c.slice(), sizes.l_out) << line;
            EXPECT_GE(int64_t{c.chunks} * c.chunk_groups, p.groups) << line;
            EXPECT_LE(workspace_plan(c, p.n, p.conv_groups, sizes.c_per_conv_group).bytes,
                      sizes.y_elements * element + (int64_t{64} << 20))
                << line;
          }
        }
      }
    }
  }
}

TEST(Moments, RefusesWithAReason) {
  EXPECT_THAT(refusal("n=1,c=1,l=6001,o=64,k=10,s=5,g=0"), HasSubstr("g=0"));
  EXPECT_THAT(refusal("n=1,c=1,l=6001,o=64,k=10,s=5,g=64,pre=relu"), HasSubstr("before the norm"));
  EXPECT_THAT(refusal("n=1,c=1,l=6001,o=64,k=10,s=5,g=64,precision=highest"), HasSubstr("precision=highest"));
  EXPECT_THAT(refusal("n=1,c=64,l=6001,o=64,k=3,g=64"), HasSubstr("192 products"));
  EXPECT_THAT(refusal("n=1,c=4,l=600,o=96,k=3,cg=2,g=6,post=glu"), HasSubstr("glu"));
  EXPECT_THAT(refusal("n=1,c=1,l=10,o=64,k=10,g=64"), HasSubstr("values"));
}

}  // namespace
}  // namespace convnorm::cuda::test
