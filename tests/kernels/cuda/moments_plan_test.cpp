// What the planner of the moments kernels decides, on any machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Moments, NumbersProductsWithoutGaps) {
  for (const int columns : {1, 3, 4, 10, 15, 60, 64}) {
    std::set<int> seen;
    for (int i = 0; i <= columns; ++i) {
      for (int j = i; j <= columns; ++j) seen.insert(product_at(i, j, columns));
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>((columns + 1) * (columns + 2) / 2)) << columns;
    EXPECT_EQ(*seen.begin(), 0) << columns;
    EXPECT_EQ(*seen.rbegin() + 1, Config{.columns = columns}.record()) << columns;
  }
}

// Every product is in one tile, whose sides name columns that there are.
TEST(Moments, FindsEveryProductInOneTile) {
  for (int columns = 1; columns <= kMostColumns; ++columns) {
    std::multiset<int> seen;
    for (int number = 0; number < tiles_of_products(columns); ++number) {
      const ProductTile tile(columns, number);
      for (int i = 0; i < kSide; ++i) {
        EXPECT_LT(std::max(tile.left(i), tile.right(i)), kSide * tiles_along(columns)) << columns;
        for (int j = 0; j < kSide; ++j) {
          if (tile.gives(tile.left(i), tile.right(j))) {
            seen.insert(product_at(tile.left(i), tile.right(j), columns));
          }
        }
      }
    }
    const auto record = static_cast<size_t>(Config{.columns = columns}.record());
    EXPECT_EQ(seen.size(), record) << columns;
    EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), record) << columns;
  }
}

// On Hopper a GELU alone after few products has a last launch of its own.
TEST(Moments, CutsTheResult) {
  const auto result = [](const std::string& line) { return std::get<Config>(plan(line)).result; };
  const std::string raw_audio = "c=1,l=160000,o=512,k=10,s=5,g=512";
  for (const char* type : {"f32", "f16", "bf16"}) {
    for (const int n : {1, 8}) {
      SCOPED_TRACE(fmt::format("{} {}", type, n));
      const ResultConfig r = result(fmt::format("n={},{},post=gelu,dtype={}", n, raw_audio, type));
      // Two for each SM at a time, and the last of them are hardly fewer.
      const int ctas = n * r.sets * r.slices, at_once = kResultPerSm * h200().sm_count;
      EXPECT_GT(ctas, 0.85 * at_once * ((ctas + at_once - 1) / at_once));
    }
  }
  EXPECT_EQ(result("n=1," + raw_audio + ",post=silu").window, 0);
  EXPECT_EQ(result("n=1," + raw_audio + ",post=gelu+silu").window, 0);
  EXPECT_EQ(result("n=1," + raw_audio + ",post=gelu,layout=nlc").window, 0);
  EXPECT_EQ(result("n=1,c=1,l=160000,o=512,k=11,s=5,g=512,post=gelu").window, 0);  // 18 pairs
}

// What the kernels rely on.
TEST(Moments, HoldsWhatTheKernelsAssume) {
  for (const int64_t n : {1, 3, 200}) {
    for (const int64_t l : {70, 515, 6001, 160000, 10'000'000}) {
      for (const int64_t o : {16, 24, 96, 512}) {
        for (const char* conv : {"c=1,k=10,s=5", "c=2,k=7,p=3", "c=20,k=3,s=3", "c=4,k=3,cg=2", "c=1,k=4,s=2,dtype=f16",
                                 "c=1,k=5,d=3,layout=nlc", "c=1,k=3,post=glu", "c=1,k=10,s=5,post=gelu",
                                 "c=1,k=10,s=5,post=gelu,dtype=bf16", "c=4,k=5,d=3,p=6,cg=2,post=gelu,dtype=f16"}) {
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
            if (const ResultConfig& r = c.result; r.window > 0) {
              const int sector = recompute::kSectorBytes / element;
              EXPECT_EQ(r.window % sector, 0) << line;
              EXPECT_LE(r.window, result_tile(element)) << line;
              // Rows may start anywhere in a sector.
              EXPECT_GE(int64_t{r.window} * r.slices, sizes.l_out + sector - 1) << line;
              EXPECT_GE(r.sets * r.set_blocks, c.stream.blocks()) << line;
              EXPECT_LE(result_plan(c, sizes.c_per_conv_group, element).bytes, h200().shared_per_block_optin) << line;
            }
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
