#include "cli/tensors.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/failure.hpp"
#include "cli/library.hpp"
#include "cli/random.hpp"

namespace convnorm::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tensor zeros(ElementType type, std::vector<int64_t> shape) {
  const auto bytes = static_cast<size_t>(byte_count(type, shape));
  return {type, std::move(shape), std::vector<std::byte>(bytes)};
}

Operands complete_line(const std::string& line, TensorMap given = {}, uint64_t seed = 0, Origin* origin = nullptr) {
  Origin unused;
  return complete(parse_line(line), std::move(given), seed, origin == nullptr ? &unused : origin);
}

std::vector<std::string> names_of(const std::string& line) {
  std::vector<std::string> names;
  for (const WantedTensor& wanted : wanted_tensors(parse_line(line))) names.push_back(wanted.name);
  return names;
}

TEST(WantedTensors, AreWhatTheLineAsksFor) {
  EXPECT_THAT(names_of("n=1,c=2,l=9,o=4,k=3,g=0"), ElementsAre("x", "weight"));
  EXPECT_THAT(names_of("n=1,c=2,l=9,o=4,k=3,g=2,affine=0,bias=1"), ElementsAre("x", "weight", "bias"));
  EXPECT_THAT(names_of("n=1,c=2,l=9,o=4,k=3,g=2,pre=prelu,lengths=1,post=film+prelu+glu+add"),
              ElementsAre("x", "weight", "gamma", "beta", "lengths", "pre_slope", "film_scale", "film_shift",
                          "post_slope", "residual"));
}

TEST(WantedTensors, ChannelsAreThoseAtThatPoint) {
  for (const WantedTensor& wanted : wanted_tensors(parse_line("n=3,c=2,l=9,o=8,k=3,g=2,post=prelu+glu+film+add"))) {
    if (wanted.name == "post_slope") {
      EXPECT_THAT(wanted.shape, ElementsAre(8));
    }
    if (wanted.name == "film_scale") {
      EXPECT_THAT(wanted.shape, ElementsAre(3, 4));
    }
    if (wanted.name == "residual") {
      EXPECT_THAT(wanted.shape, ElementsAre(3, 4, 7));
    }
  }
}

TEST(Generator, SameSeedSameTensorsWhateverElseIsDrawn) {
  const Operands few = complete_line("n=2,c=3,l=9,o=4,k=3,g=2", {}, 7);
  const Operands many = complete_line("n=2,c=3,l=9,o=4,k=3,g=2,bias=1,lengths=1,post=film", {}, 7);
  for (const char* name : {"x", "weight", "gamma"}) EXPECT_EQ(few.tensors.at(name).data, many.tensors.at(name).data);
  EXPECT_NE(few.tensors.at("x").data, complete_line("n=2,c=3,l=9,o=4,k=3,g=2", {}, 8).tensors.at("x").data);
}

TEST(Generator, FirstNumbersNeverChange) {
  Random random(0, "x");
  EXPECT_EQ(random.bits(), 0x6d1064f5ed120b06u);
  EXPECT_EQ(random.bits(), 0xef5799c790684d1du);
}

TEST(Generator, IsStandardNormal) {
  Random random(3, "sample");
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.015);
}

TEST(Generator, LengthsLeaveAnOutputAndStayInside) {
  for (const char* line : {"n=200,c=1,l=10,o=1,k=9,g=1,lengths=1", "n=200,c=1,l=30,o=1,k=3,p=1,g=1,lengths=1",
                           "n=200,c=1,l=9,o=1,k=9,p=7,pad=reflect,g=1,lengths=1"}) {
    const convnorm_problem p = parse_line(line);
    const Tensor lengths = complete_line(line).tensors.at("lengths");
    const int64_t* const begin = reinterpret_cast<const int64_t*>(lengths.data.data());
    const auto [low, high] = std::minmax_element(begin, begin + 200);
    EXPECT_EQ(*high, p.l) << line;
    EXPECT_GE(*low, (p.l + 2) / 3) << line;
    EXPECT_GE(*low + p.pad_left + p.pad_right, p.dilation * (p.k - 1) + 1) << line;
    if (p.pad == CONVNORM_REFLECT) {
      EXPECT_GT(*low, p.pad_left);
    }
  }
}

TEST(Complete, SaysWhatWasDrawn) {
  Origin origin;
  complete_line("n=1,c=2,l=9,o=4,k=3,g=2", {{"weight", zeros(ElementType::f32, {4, 2, 3})}}, 0, &origin);
  EXPECT_THAT(origin.drawn, ElementsAre("x", "gamma", "beta"));
}

TEST(Complete, UnknownNameGetsASuggestion) {
  EXPECT_THAT(
      [] {
        complete_line("n=1,c=2,l=9,o=4,k=3,g=2", {{"gama", zeros(ElementType::f32, {4})}});
      },
      ThrowsMessage<BadInput>(AllOf(HasSubstr("\"gama\""), HasSubstr("did you mean gamma?"))));
}

TEST(Complete, TensorThatTheLineDoesNotUseIsRefused) {
  EXPECT_THAT(
      [] {
        complete_line("n=1,c=2,l=9,o=4,k=3,g=2", {{"bias", zeros(ElementType::f32, {4})}});
      },
      ThrowsMessage<BadInput>(HasSubstr("bias=1")));
}

TEST(Complete, WrongShapeNamesFoundAndWanted) {
  EXPECT_THAT(
      [] {
        complete_line("n=1,c=2,l=9,o=4,k=3,g=2", {{"weight", zeros(ElementType::f32, {4, 3, 2})}});
      },
      ThrowsMessage<BadInput>(AllOf(HasSubstr("weight"), HasSubstr("(4, 3, 2)"), HasSubstr("(4, 2, 3)"))));
}

TEST(Complete, SlopeMayBeOneElement) {
  const Operands operands =
      complete_line("n=1,c=2,l=9,o=4,k=3,g=2,pre=prelu", {{"pre_slope", zeros(ElementType::f32, {1})}});
  EXPECT_EQ(operands.view().pre_slope_per_channel, 0);
  EXPECT_EQ(complete_line("n=1,c=2,l=9,o=4,k=3,g=2,pre=prelu").view().pre_slope_per_channel, 1);
}

TEST(Complete, B057ConversionOfXIsNotedAndThatOfParametersIsNot) {
  Origin origin;
  const Operands operands =
      complete_line("n=1,c=2,l=9,o=4,k=3,g=2",
                    {{"x", zeros(ElementType::f64, {1, 2, 9})}, {"gamma", zeros(ElementType::bf16, {4})}}, 0, &origin);
  EXPECT_THAT(origin.notes, ElementsAre("x converted from f64 to f32"));
  EXPECT_EQ(operands.tensors.at("x").type, ElementType::f32);
  EXPECT_EQ(operands.tensors.at("gamma").type, ElementType::f32);
}

TEST(Complete, B119IntegersAreRefusedNamingFoundAndAccepted) {
  EXPECT_THAT(
      [] {
        complete_line("n=1,c=2,l=9,o=4,k=3,g=2", {{"x", zeros(ElementType::i16, {1, 2, 9})}});
      },
      ThrowsMessage<BadInput>(AllOf(HasSubstr("x is i16"), HasSubstr("f16, bf16, f32 and f64"))));
  EXPECT_THAT(
      [] {
        complete_line("n=1,c=2,l=9,o=4,k=3,g=2,lengths=1", {{"lengths", zeros(ElementType::f32, {1})}});
      },
      ThrowsMessage<BadInput>(AllOf(HasSubstr("lengths is f32"), HasSubstr("i64"))));
}

TEST(Complete, EmptyTensorsAreStillThere) { EXPECT_NE(complete_line("n=2,c=4,l=0,o=4,k=2,p=1,g=2").view().x, nullptr); }

TEST(Cut, TakesAStretchOfAnyAxis) {
  Tensor tensor{ElementType::u8, {2, 3, 2}, {}};
  for (int i = 0; i < 12; ++i) tensor.data.push_back(static_cast<std::byte>(i));
  const auto values = [&tensor](int axis, int64_t begin, int64_t count) {
    std::vector<int> all;
    for (const std::byte b : cut(tensor, axis, begin, count).data) all.push_back(static_cast<int>(b));
    return all;
  };
  EXPECT_THAT(values(0, 1, 1), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(values(1, 1, 2), ElementsAre(2, 3, 4, 5, 8, 9, 10, 11));
  EXPECT_THAT(values(2, 1, 1), ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_THAT(values(1, 0, 0), ElementsAre());
}

}  // namespace
}  // namespace convnorm::cli
