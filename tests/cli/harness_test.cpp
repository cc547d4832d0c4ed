// The harness of check and bench against operators that are wrong on purpose: each must be found out.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <thread>

#include "cli/check.hpp"
#include "cli/timing.hpp"

namespace convnorm::cli {
namespace {

class Harness : public ::testing::Test {
 protected:
  Harness() : Harness("n=2,c=4,l=19,o=6,k=3,p=1,g=2,bias=1,post=silu") {}
  explicit Harness(const std::string& line) : problem_(parse_line(line)) {
    Origin origin;
    operands_ = complete(problem_, {}, 1, &origin);
    others_ = complete(problem_, {}, 2, &origin);
    for (auto& [name, tensor] : others_.tensors) {
      if (name != "x") tensor = operands_.tensors.at(name);
    }
    convnorm_plan_options options;
    convnorm_plan_options_init(&options);
    options.threads = 1;
    right_ = planned_subject(std::make_shared<const Plan>(problem_, options));
  }

  CheckResult check(const Subject& subject) const { return Expectation(operands_, {}).check(subject); }

  // As bench does it, but the expected outputs come from the right operator.
  Timing time(const Subject& subject) const {
    std::vector<Content> contents;
    for (const Operands* operands : {&operands_, &others_}) {
      contents.push_back({operands, Expectation(*operands, {}).check(right_).y});
    }
    return time_subject(subject, contents, {.min_seconds = 0.001, .min_calls = 40});
  }

  size_t y_bytes() const {
    return static_cast<size_t>(byte_count(element_type(problem_.dtype), output_shape(problem_)));
  }

  // The right operator, with `extra` done to the call afterwards.
  template <class Extra>
  Subject with(Extra extra) const {
    Subject mutant = right_;
    mutant.execute = [right = right_, extra](const convnorm_tensors& tensors, void* workspace) {
      right.execute(tensors, workspace);
      extra(tensors, workspace);
    };
    return mutant;
  }

  convnorm_problem problem_;
  Operands operands_, others_;
  Subject right_;
};

TEST_F(Harness, TheRightOperatorPasses) {
  const CheckResult result = check(right_);
  EXPECT_TRUE(result.pass()) << result.fault;
  EXPECT_EQ(result.compared, "all");
  const Timing timing = time(right_);
  EXPECT_EQ(timing.fault, "");
  EXPECT_GE(timing.calls, 40);
  EXPECT_GT(timing.median, 0);
}

TEST_F(Harness, B092UnwrittenOutputFails) {
  Subject mutant = right_;
  mutant.execute = [](const convnorm_tensors&, void*) {};
  const CheckResult result = check(mutant);
  EXPECT_FALSE(result.pass());
  EXPECT_GT(result.comparison.nonfinite_mismatches(), 0);
  EXPECT_NE(time(mutant).fault, "");
}

TEST_F(Harness, B093ZeroingTheInputsFails) {
  const size_t x_bytes = operands_.tensors.at("x").data.size();
  Subject mutant = right_;
  mutant.execute = [x_bytes, y = y_bytes()](const convnorm_tensors& tensors, void*) {
    std::memset(const_cast<void*>(tensors.x), 0, x_bytes);
    std::memset(tensors.y, 0, y);
  };
  EXPECT_EQ(check(mutant).fault, "changed its input x");
  EXPECT_FALSE(check(mutant).comparison.pass());

  const Subject spoiler =
      with([x_bytes](const convnorm_tensors& t, void*) { std::memset(const_cast<void*>(t.x), 0, x_bytes); });
  EXPECT_EQ(check(spoiler).fault, "changed its input x");
  EXPECT_NE(time(spoiler).fault.find("changed its input x"), std::string::npos);
}

TEST_F(Harness, B097AnswerRememberedByAddressFails) {
  auto remembered = std::make_shared<std::map<const void*, std::vector<std::byte>>>();
  Subject mutant = right_;
  mutant.execute = [right = right_, remembered, size = y_bytes()](const convnorm_tensors& tensors, void* workspace) {
    const auto found = remembered->find(tensors.x);
    if (found != remembered->end()) {
      std::memcpy(tensors.y, found->second.data(), size);
      return;
    }
    right.execute(tensors, workspace);
    const std::byte* const y = static_cast<const std::byte*>(tensors.y);
    remembered->emplace(tensors.x, std::vector<std::byte>(y, y + size));
  };
  std::vector<Content> contents;
  for (const Operands* operands : {&operands_, &others_}) {
    contents.push_back({operands, Expectation(*operands, {}).check(right_).y});
  }
  EXPECT_NE(time_subject(mutant, contents, {.min_seconds = 0.001, .min_calls = 40, .hot = true}).fault, "");
}

TEST_F(Harness, B099NanEverywhereFails) {
  const Subject mutant = with([size = y_bytes()](const convnorm_tensors& t, void*) { std::memset(t.y, 0x7F, size); });
  EXPECT_FALSE(check(mutant).pass());
  const Subject nan = with([size = y_bytes()](const convnorm_tensors& t, void*) { std::memset(t.y, 0xFF, size); });
  EXPECT_FALSE(check(nan).pass());
}

TEST_F(Harness, B099NanInTheReferenceIsNoWildcard) {
  float* const x = reinterpret_cast<float*>(operands_.tensors.at("x").data.data());
  x[3] = std::numeric_limits<float>::quiet_NaN();
  const Subject finite = with([size = y_bytes()](const convnorm_tensors& t, void*) { std::memset(t.y, 0, size); });
  EXPECT_FALSE(check(finite).pass());
  EXPECT_FALSE(check(right_).pass());
  EXPECT_TRUE(Expectation(operands_, {.allow_nan = true}).check(right_).pass());
}

TEST_F(Harness, B103RightForTheFirstCallsOnlyFails) {
  auto calls = std::make_shared<int>(0);
  Subject mutant = right_;
  mutant.execute = [right = right_, calls](const convnorm_tensors& tensors, void* workspace) {
    if (++*calls <= 10) right.execute(tensors, workspace);
  };
  EXPECT_TRUE(check(mutant).pass());
  EXPECT_NE(time(mutant).fault, "");
}

TEST_F(Harness, B103RightOnTheLastCallOnlyFails) {
  auto last = std::make_shared<const void*>(nullptr);
  Subject mutant = right_;
  mutant.execute = [right = right_, last](const convnorm_tensors& tensors, void* workspace) {
    // The first buffers that it meets a second time: all calls before them did nothing.
    if (*last == nullptr) *last = tensors.x;
    if (*last == tensors.x) right.execute(tensors, workspace);
  };
  EXPECT_NE(time(mutant).fault, "");
}

TEST_F(Harness, WritesBeyondTheBuffersFail) {
  const Subject behind =
      with([size = y_bytes()](const convnorm_tensors& t, void*) { static_cast<unsigned char*>(t.y)[size] = 0; });
  EXPECT_EQ(check(behind).fault, "wrote outside of y");
  EXPECT_NE(time(behind).fault.find("wrote outside of y"), std::string::npos);
  const Subject before = with([](const convnorm_tensors& t, void*) { static_cast<unsigned char*>(t.y)[-1] = 0; });
  EXPECT_EQ(check(before).fault, "wrote outside of y");
  const Subject scratch = with([size = right_.workspace_size](const convnorm_tensors&, void* workspace) {
    static_cast<unsigned char*>(workspace)[size] = 0;
  });
  EXPECT_EQ(check(scratch).fault, "wrote outside of its workspace");
}

TEST_F(Harness, B101TimesAreOfTheWorkNotOfTheCall) {
  constexpr auto kWork = std::chrono::milliseconds(2);
  const Timing timing = time(with([kWork](const convnorm_tensors&, void*) { std::this_thread::sleep_for(kWork); }));
  EXPECT_EQ(timing.fault, "");
  EXPECT_GE(timing.median, 2e-3);
}

TEST(Floor, IsTheLargerOfMathAndMemory) {
  const convnorm_machine machine{.fma_gflops = 100, .bandwidth_gbps = 10, .threads = 1};
  EXPECT_DOUBLE_EQ(floor_seconds({2e11, 1e9}, machine, true), 2.0);
  EXPECT_DOUBLE_EQ(floor_seconds({2e11, 5e10}, machine, true), 5.0);
  EXPECT_DOUBLE_EQ(floor_seconds({2e11, 5e10}, machine, false), 2.0);
  EXPECT_TRUE(is_below_floor(1.7, 2.0));
  EXPECT_FALSE(is_below_floor(1.85, 2.0));
}

class SmallOutputs : public Harness {
 protected:
  SmallOutputs() : Harness("n=2,c=4,l=19,o=6,k=3,p=1,g=2") {
    for (const auto& [name, value] : {std::pair{"gamma", 2e-5f}, {"beta", 0.0f}}) {
      Tensor& tensor = operands_.tensors.at(name);
      std::fill_n(reinterpret_cast<float*>(tensor.data.data()), tensor.data.size() / sizeof(float), value);
    }
  }
};

TEST_F(SmallOutputs, B095ZerosFail) {
  EXPECT_TRUE(check(right_).pass());
  const Subject zeros = with([size = y_bytes()](const convnorm_tensors& t, void*) { std::memset(t.y, 0, size); });
  EXPECT_FALSE(check(zeros).pass());
}

class Unfused : public ::testing::TestWithParam<const char*> {};

TEST_P(Unfused, TwoStepsGiveTheSame) {
  const convnorm_problem problem = parse_line(GetParam());
  Origin origin;
  const Operands operands = complete(problem, {}, 5, &origin);
  convnorm_plan_options options;
  convnorm_plan_options_init(&options);
  const CheckResult result = Expectation(operands, {}).check(unfused_subject(problem, options));
  EXPECT_TRUE(result.pass()) << result.fault << result.comparison.worst_ratio();
}

INSTANTIATE_TEST_SUITE_P(Lines, Unfused,
                         ::testing::Values("n=2,c=6,l=30,o=8,k=5,s=2,p=2,pad=reflect,g=4,bias=1,post=gelu",
                                           "n=3,c=6,l=30,o=8,k=3,p=1,g=2,lengths=1,pre=prelu,post=film+glu+add",
                                           "n=2,c=6,l=30,o=8,k=3,p=1,g=2,layout=nlc,dtype=f16,post=mish"));

TEST(Pieces, EachGivesWhatTheWholeGives) {
  for (const char* line :
       {"n=3,c=4,l=21,o=12,k=3,p=1,g=4,bias=1,lengths=1,pre=prelu,post=film+silu+add",
        "n=2,c=4,l=21,o=6,k=3,p=1,g=0,layout=nlc,post=add", "n=4,c=4,l=21,o=8,k=3,p=1,cg=2,g=2,bias=1,post=glu"}) {
    const convnorm_problem problem = parse_line(line);
    Origin origin;
    const Operands operands = complete(problem, {}, 3, &origin);
    const Piece whole{0, problem.n, 0, problem.o};
    const std::vector<float> all = reference_output(operands, whole, 1);
    Tensor y{ElementType::f32, output_shape(problem), std::vector<std::byte>(all.size() * sizeof(float))};
    std::memcpy(y.data.data(), all.data(), y.data.size());
    for (const double share : {0.05, 0.3, 0.6}) {
      const std::vector<Piece> pieces = affordable_pieces(problem, share * flops(problem));
      EXPECT_NE(pieces_text(problem, pieces), "all");
      for (const Piece& piece : pieces) {
        EXPECT_EQ(reference_output(operands, piece, 1), piece_of_output(problem, y, piece)) << line;
      }
    }
  }
}

TEST(Pieces, PositionsAreThoseOfTheWholeOutput) {
  const convnorm_problem ncl = parse_line("n=2,c=1,l=5,o=4,k=1,g=2");
  const Position position = position_in_output(ncl, {1, 1, 2, 2}, 5 + 3);
  EXPECT_EQ(position.n, 1);
  EXPECT_EQ(position.c, 3);
  EXPECT_EQ(position.l, 3);
  const convnorm_problem nlc = parse_line("n=2,c=1,l=5,o=4,k=1,g=2,layout=nlc");
  const Position last = position_in_output(nlc, {0, 2, 0, 4}, 2 * 5 * 4 - 2);
  EXPECT_EQ(last.n, 1);
  EXPECT_EQ(last.c, 2);
  EXPECT_EQ(last.l, 4);
}

TEST(Conditioning, OfWhiteNoiseIsAsDerived) {
  // E|w| E|x| C K over the deviation of z, with x of mean 0.3 and deviation 1.
  const convnorm_problem problem = parse_line("n=1,c=128,l=200,o=64,k=3,p=1,g=8");
  Origin origin;
  const Operands operands = complete(problem, {}, 0, &origin);
  EXPECT_NEAR(conditioning(operands, 1), 12, 3);
}

}  // namespace
}  // namespace convnorm::cli
