#include "cli/problem_list.hpp"

#include <gmock/gmock.h>

#include <sstream>

#include "cli/failure.hpp"
#include "cli/library.hpp"

namespace convnorm::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<NamedProblem> read(const std::string& text) {
  std::istringstream list(text);
  return read_list(list, "list.txt");
}

TEST(ProblemList, NamesCommentsTabsAndBareLines) {
  const auto problems = read(
      "# layers\n\n first \t n=1,c=2,l=9,o=4,k=3,g=2\tfrom a model\r\nn=1,c=2,l=8,o=4,k=1,g=1 # bare\n"
      "last n=2,c=2,l=8,o=4,k=1,g=0");
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].name, "first");
  EXPECT_EQ(print_line(problems[0].problem), "n=1,c=2,l=9,o=4,k=3,g=2");
  EXPECT_EQ(problems[1].name, "");
  EXPECT_EQ(problems[2].problem.n, 2);
}

TEST(ProblemList, ErrorsNameFileAndRow) {
  EXPECT_THAT([] { read("# one\nn=1,c=2,l=9,o=4,k=3,g=3\n"); }, ThrowsMessage<BadInput>(HasSubstr("list.txt:2: ")));
  EXPECT_THAT([] { read("word\n"); }, ThrowsMessage<BadInput>(HasSubstr("list.txt:1: \"word\" is neither")));
  EXPECT_THAT([] { read("# nothing\n"); }, ThrowsMessage<BadInput>(HasSubstr("holds no problem line")));
  EXPECT_THAT([] { read(std::string(100000, 'n')); }, ThrowsMessage<BadInput>(HasSubstr("longer than 4096 bytes")));
  EXPECT_THAT([] { read("a n=1,c=2,l=auto,o=4,k=3,g=2\n"); }, ThrowsMessage<BadInput>(HasSubstr("l=auto takes")));
}

TEST(ProblemList, MissingFileIsNamed) {
  EXPECT_THAT([] { read_problems("@no/such/file.txt", {}); }, ThrowsMessage<BadInput>(HasSubstr("no/such/file.txt")));
}

TEST(ProblemList, OnlyNeedsAList) {
  EXPECT_THAT([] { read_problems("n=1,c=2,l=9,o=4,k=3,g=2", {"a"}); },
              ThrowsMessage<BadInput>(HasSubstr("--only chooses from a list")));
}

TEST(AutoSizes, FollowTheLayout) {
  const Tensor x{ElementType::f32, {2, 3, 50}, {}};
  EXPECT_EQ(resolve_auto("n=auto,c=auto,l=auto,o=4", &x), "n=2,c=3,l=50,o=4");
  EXPECT_EQ(resolve_auto("layout=nlc,n=auto,c=auto,l=auto", &x), "layout=nlc,n=2,c=50,l=3");
  EXPECT_EQ(resolve_auto("n=1,c=3,l=50,o=auto", &x), "n=1,c=3,l=50,o=auto");
}

TEST(AutoSizes, NeedATensorOfThreeDimensions) {
  const Tensor x{ElementType::f32, {50}, {}};
  EXPECT_THAT([&] { resolve_auto("l=auto", &x); }, ThrowsMessage<BadInput>(HasSubstr("found shape (50,)")));
  EXPECT_THAT([&] { resolve_auto("n=auto", nullptr); }, ThrowsMessage<BadInput>(HasSubstr("n=auto takes its size")));
}

}  // namespace
}  // namespace convnorm::cli
