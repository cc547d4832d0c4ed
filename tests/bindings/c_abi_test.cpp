#include <convnorm/convnorm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/fills.hpp"

extern "C" int convnorm_test_from_c(void);

namespace convnorm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using PlanHandle = std::unique_ptr<convnorm_plan, decltype(&convnorm_plan_destroy)>;

convnorm_problem parsed(const std::string& line) {
  convnorm_problem problem{};
  EXPECT_EQ(convnorm_problem_parse(line.c_str(), &problem), CONVNORM_OK) << convnorm_last_error();
  return problem;
}

PlanHandle planned(const std::string& line, convnorm_plan_options options = {.path = "reference"}) {
  const convnorm_problem problem = parsed(line);
  convnorm_plan* plan = nullptr;
  EXPECT_EQ(convnorm_plan_create(&problem, &options, &plan), CONVNORM_OK) << convnorm_last_error();
  return {plan, convnorm_plan_destroy};
}

// Every tensor of a problem that has them all, so that each can be taken away or spoilt in turn.
class Execute : public testing::Test {
 protected:
  Execute() {
    tensors = {.x = x.data(),
               .packed_weight = packed.data(),
               .bias = parameters.data(),
               .gamma = parameters.data(),
               .beta = parameters.data(),
               .lengths = lengths.data(),
               .pre_slope = parameters.data(),
               .post_slope = parameters.data(),
               .film_scale = parameters.data(),
               .film_shift = parameters.data(),
               .residual = x.data(),
               .y = y.data()};
    EXPECT_EQ(convnorm_pack_weight(plan.get(), w.data(), packed.data(), packed.size(), nullptr), CONVNORM_OK);
  }

  convnorm_status execute() {
    return convnorm_execute(plan.get(), &tensors, workspace.data(), workspace.size(), nullptr);
  }

  // Fails with the status and says all the words; nothing has been written.
  void expect_refused(convnorm_status status, std::vector<const char*> words) {
    const auto before = y;
    EXPECT_EQ(execute(), status);
    for (const char* word : words) EXPECT_THAT(convnorm_last_error(), HasSubstr(word));
    EXPECT_EQ(y, before);
  }

  PlanHandle plan = planned("n=2,c=4,l=10,o=4,k=3,p=1,g=2,bias=1,pre=prelu,post=film+prelu+add,lengths=1");
  std::vector<float> x = filled(80, s_fill_x), w = filled(48, s_fill_w), parameters = filled(8, s_fill_gamma);
  std::vector<float> y = std::vector<float>(80, 7.0f);
  std::vector<int64_t> lengths = {10, 6};
  std::vector<char> packed = std::vector<char>(convnorm_plan_packed_size(plan.get()));
  std::vector<char> workspace = std::vector<char>(convnorm_plan_workspace_size(plan.get()));
  convnorm_tensors tensors{};
};

TEST_F(Execute, Works) { EXPECT_EQ(execute(), CONVNORM_OK) << convnorm_last_error(); }

TEST_F(Execute, NamesTheNullTensorAndWhoNeedsIt) {
  const std::pair<const void * convnorm_tensors::*, std::vector<const char*>> cases[] = {
      {&convnorm_tensors::x, {"x is null"}},
      {&convnorm_tensors::packed_weight, {"packed_weight is null"}},
      {&convnorm_tensors::bias, {"bias is null", "bias=1", "4 elements"}},
      {&convnorm_tensors::gamma, {"gamma is null", "affine=1"}},
      {&convnorm_tensors::beta, {"beta is null", "affine=1"}},
      {&convnorm_tensors::pre_slope, {"pre_slope is null", "pre=prelu"}},
      {&convnorm_tensors::post_slope, {"post_slope is null", "prelu in post"}},
      {&convnorm_tensors::film_scale, {"film_scale is null", "film in post", "8 elements"}},
      {&convnorm_tensors::film_shift, {"film_shift is null", "film in post"}},
      {&convnorm_tensors::residual, {"residual is null", "add in post"}},
  };
  for (const auto& [member, words] : cases) {
    const void* kept = tensors.*member;
    tensors.*member = nullptr;
    expect_refused(CONVNORM_INVALID_ARGUMENT, words);
    tensors.*member = kept;
  }
  tensors.lengths = nullptr;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"lengths is null", "lengths=1"});
  tensors.lengths = lengths.data();
  tensors.y = nullptr;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"y is null"});
}

TEST_F(Execute, NamesATensorThatTheProblemDoesNotHave) {
  plan = planned("n=2,c=4,l=10,o=4,k=3,p=1,g=2,affine=0");
  const auto used = tensors;
  tensors = {.x = used.x, .packed_weight = used.packed_weight, .y = used.y};
  tensors.gamma = used.gamma;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"gamma is given", "affine=1"});
  tensors.gamma = nullptr;
  tensors.residual = used.residual;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"residual is given", "add in post"});
}

TEST_F(Execute, RefusesOverlaps) {
  // Room for all of y, so that it reaches into nothing else.
  std::vector<float> room(x.size() + y.size() + 64);
  tensors.x = room.data(), tensors.y = room.data() + 1;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"y overlaps x"});
  tensors.x = x.data();
  tensors.bias = tensors.y = room.data();
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"y overlaps bias"});
  tensors.bias = parameters.data();
  tensors.y = workspace.data();
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"y overlaps"});
  tensors.y = packed.data() + 64;
  expect_refused(CONVNORM_INVALID_ARGUMENT,
                 {"y overlaps packed_weight", "320 bytes from", "what convnorm_pack_weight has filled"});
}

// It is smaller than a packed one: what lies behind it seems to overlap.
TEST_F(Execute, AWeightThatIsNotPackedIsNamedBeforeItsNeighbours) {
  std::vector<float> room(w.size() + y.size());
  std::ranges::copy(w, room.begin());
  tensors.packed_weight = room.data(), tensors.y = room.data() + w.size();
  ASSERT_GT(packed.size(), w.size() * sizeof(float));
  expect_refused(CONVNORM_PACKED_MISMATCH, {"convnorm_pack_weight"});
}

TEST_F(Execute, RefusesMisalignedTensors) {
  tensors.gamma = reinterpret_cast<const char*>(parameters.data()) + 2;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"gamma", "aligned", "4 bytes"});
}

TEST_F(Execute, RefusesLengthsOutOfRange) {
  lengths[1] = 11;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"lengths[1]=11", "l=10"});
  lengths[1] = -1;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"lengths[1]=-1"});
}

TEST_F(Execute, ChecksFlagsAndTypes) {
  tensors.pre_slope_per_channel = 2;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"pre_slope_per_channel=2"});
  tensors.pre_slope_per_channel = 1;
  EXPECT_EQ(execute(), CONVNORM_OK);
  y.assign(y.size(), 7);
  tensors.param_dtype = CONVNORM_BF16;
  expect_refused(CONVNORM_INVALID_ARGUMENT, {"param_dtype", "2", "f32"});
}

TEST_F(Execute, ChecksTheWorkspace) {
  EXPECT_EQ(convnorm_execute(plan.get(), &tensors, workspace.data(), workspace.size() - 1, nullptr),
            CONVNORM_BUFFER_TOO_SMALL);
  EXPECT_THAT(convnorm_last_error(), HasSubstr(std::to_string(workspace.size())));
  EXPECT_EQ(convnorm_execute(plan.get(), &tensors, nullptr, workspace.size(), nullptr), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_execute(plan.get(), nullptr, workspace.data(), workspace.size(), nullptr),
            CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_execute(nullptr, &tensors, workspace.data(), workspace.size(), nullptr),
            CONVNORM_INVALID_ARGUMENT);
}

TEST_F(Execute, RecognisesWhatIsNotItsPackedWeight) {
  auto kept = packed;
  packed.assign(packed.size(), 0);
  expect_refused(CONVNORM_PACKED_MISMATCH, {"header", "convnorm_pack_weight"});
  packed = kept;
  plan = planned("n=2,c=4,l=10,o=4,k=3,p=1,g=1,bias=1,pre=prelu,post=film+prelu+add,lengths=1");
  workspace.resize(convnorm_plan_workspace_size(plan.get()));
  expect_refused(CONVNORM_PACKED_MISMATCH, {"another plan", "g=1"});
  EXPECT_EQ(convnorm_check_packed(plan.get(), packed.data(), nullptr), CONVNORM_PACKED_MISMATCH);
  EXPECT_EQ(convnorm_check_packed(plan.get(), nullptr, nullptr), CONVNORM_INVALID_ARGUMENT);
  ASSERT_EQ(convnorm_pack_weight(plan.get(), w.data(), packed.data(), packed.size(), nullptr), CONVNORM_OK);
  EXPECT_EQ(convnorm_check_packed(plan.get(), packed.data(), nullptr), CONVNORM_OK) << convnorm_last_error();
}

// Buffers need no more alignment than malloc gives, whatever the kernels want.
TEST_F(Execute, BuffersMayStartAnywhereOn16Bytes) {
  ASSERT_EQ(execute(), CONVNORM_OK);
  const auto expected = y;
  const size_t packed_size = packed.size(), workspace_size = workspace.size();
  std::vector<char> shifted_packed(packed_size + 64), shifted_workspace(workspace_size + 64);
  for (size_t shift = 0; shift < 64; shift += 16) {
    y.assign(y.size(), NAN);
    char* at = shifted_packed.data() + shift;
    ASSERT_EQ(convnorm_pack_weight(plan.get(), w.data(), at, packed_size, nullptr), CONVNORM_OK);
    tensors.packed_weight = at;
    ASSERT_EQ(convnorm_execute(plan.get(), &tensors, shifted_workspace.data() + shift, workspace_size, nullptr),
              CONVNORM_OK);
    EXPECT_EQ(y, expected);
  }
}

TEST_F(Execute, APackedWeightMayMoveByMultiplesOfItsAlignment) {
  std::vector<char> copies(packed.size() + 128);
  const auto offset = [](const void* a) { return reinterpret_cast<uintptr_t>(a) % 64; };
  char* at = copies.data();
  while (offset(at) != offset(packed.data())) ++at;
  std::memcpy(at, packed.data(), packed.size());
  tensors.packed_weight = at;
  EXPECT_EQ(execute(), CONVNORM_OK) << convnorm_last_error();
  std::memcpy(at + 16, packed.data(), packed.size());
  tensors.packed_weight = at + 16;
  y.assign(y.size(), 7);
  expect_refused(CONVNORM_PACKED_MISMATCH, {"aligned differently", "64"});
}

TEST_F(Execute, PackChecksItsArguments) {
  const auto pack = [&](const void* weight, void* to, size_t size) {
    return convnorm_pack_weight(plan.get(), weight, to, size, nullptr);
  };
  EXPECT_EQ(pack(w.data(), packed.data(), packed.size() - 1), CONVNORM_BUFFER_TOO_SMALL);
  EXPECT_EQ(pack(nullptr, packed.data(), packed.size()), CONVNORM_INVALID_ARGUMENT);
  EXPECT_THAT(convnorm_last_error(), HasSubstr("weight is null"));
  EXPECT_EQ(pack(w.data(), nullptr, packed.size()), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(pack(packed.data() + 8, packed.data(), packed.size()), CONVNORM_INVALID_ARGUMENT);
  EXPECT_THAT(convnorm_last_error(), HasSubstr("packed overlaps weight"));
}

TEST_F(Execute, B083_RepeatsTheSameBits) {
  ASSERT_EQ(execute(), CONVNORM_OK);
  const auto expected = y;
  for (int i = 0; i < 3; ++i) {
    y.assign(y.size(), NAN);
    workspace.assign(workspace.size(), '\xff');
    ASSERT_EQ(execute(), CONVNORM_OK);
    EXPECT_EQ(y, expected);
  }
}

TEST_F(Execute, B074_OnePlanServesManyThreads) {
  ASSERT_EQ(execute(), CONVNORM_OK);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4, std::vector<float>(y.size()));
  for (auto& result : results) {
    threads.emplace_back([&] {
      std::vector<char> own(workspace.size());
      auto own_tensors = tensors;
      own_tensors.y = result.data();
      for (int i = 0; i < 50; ++i) {
        ASSERT_EQ(convnorm_execute(plan.get(), &own_tensors, own.data(), own.size(), nullptr), CONVNORM_OK);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, y);
}

TEST(CAbi, B037_AnEmptyBatchNeedsNothing) {
  const auto plan = planned("n=0,c=6,l=20,o=8,k=3,p=1,g=4");
  const convnorm_tensors none{};
  EXPECT_EQ(convnorm_execute(plan.get(), &none, nullptr, 0, nullptr), CONVNORM_OK) << convnorm_last_error();
}

TEST(CAbi, B028_B029_B032_BadGroupsAreErrorsNotCrashes) {
  for (const char* line : {"n=4,c=6,l=5,o=6,k=1,g=-1", "n=4,c=6,l=5,o=6,k=1,g=4", "n=5,c=1,l=224,o=2,k=3,cg=0,g=1"}) {
    convnorm_problem problem;
    EXPECT_EQ(convnorm_problem_parse(line, &problem), CONVNORM_INVALID_ARGUMENT);
    EXPECT_STRNE(convnorm_last_error(), "");
  }
}

TEST(CAbi, AFailedParseLeavesTheProblemAlone) {
  convnorm_problem problem = parsed("n=1,c=1,l=4,o=1,k=1,g=1");
  const convnorm_problem before = problem;
  EXPECT_EQ(convnorm_problem_parse("n=1,c=1,l=4,o=1,k=0,g=1", &problem), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_problem_parse("nonsense", &problem), CONVNORM_PARSE_ERROR);
  EXPECT_EQ(std::memcmp(&problem, &before, sizeof problem), 0);
}

TEST(CAbi, HandsOutTextBySize) {
  const convnorm_problem problem = parsed("n=1,c=1,l=4,o=1,k=1,g=1");
  size_t needed = 0;
  EXPECT_EQ(convnorm_problem_print(&problem, nullptr, 0, &needed), CONVNORM_OK);
  EXPECT_EQ(needed, sizeof("n=1,c=1,l=4,o=1,k=1,g=1"));
  std::string buffer(needed, '#');
  EXPECT_EQ(convnorm_problem_print(&problem, buffer.data(), needed - 1, nullptr), CONVNORM_BUFFER_TOO_SMALL);
  EXPECT_EQ(buffer, std::string(needed, '#'));
  EXPECT_EQ(convnorm_problem_print(&problem, buffer.data(), needed, nullptr), CONVNORM_OK);
  EXPECT_STREQ(buffer.c_str(), "n=1,c=1,l=4,o=1,k=1,g=1");
  EXPECT_EQ(convnorm_problem_print(&problem, nullptr, 0, nullptr), CONVNORM_INVALID_ARGUMENT);
}

TEST(CAbi, NullArgumentsAreErrors) {
  convnorm_problem problem = parsed("n=1,c=1,l=4,o=1,k=1,g=1");
  convnorm_plan* plan = nullptr;
  EXPECT_EQ(convnorm_problem_parse(nullptr, &problem), CONVNORM_INVALID_ARGUMENT);
  EXPECT_THAT(convnorm_last_error(), HasSubstr("line is null"));
  EXPECT_EQ(convnorm_problem_parse("n=1", nullptr), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_problem_validate(nullptr), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_problem_print(nullptr, nullptr, 0, nullptr), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_problem_equal(nullptr, &problem), 0);
  EXPECT_EQ(convnorm_problem_hash(nullptr), 0u);
  EXPECT_EQ(convnorm_problem_output_length(nullptr), -1);
  EXPECT_EQ(convnorm_problem_output_channels(nullptr), -1);
  EXPECT_EQ(convnorm_plan_create(nullptr, nullptr, &plan), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_plan_create(&problem, nullptr, nullptr), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_plan_explain(nullptr, nullptr, CONVNORM_TEXT, nullptr, 0, nullptr), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_machine_measure(1, nullptr, nullptr), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(convnorm_plan_packed_size(nullptr), 0u);
  EXPECT_EQ(convnorm_plan_workspace_size(nullptr), 0u);
  EXPECT_STREQ(convnorm_plan_path(nullptr), "");
  EXPECT_STREQ(convnorm_plan_target(nullptr), "");
  convnorm_problem_init(nullptr);
  convnorm_plan_options_init(nullptr);
  convnorm_plan_problem(nullptr, &problem);
  convnorm_plan_destroy(nullptr);
}

TEST(CAbi, AnInvalidProblemHasNoAnswers) {
  convnorm_problem problem;
  convnorm_problem_init(&problem);
  EXPECT_EQ(convnorm_problem_output_length(&problem), -1);
  EXPECT_EQ(convnorm_problem_equal(&problem, &problem), 0);
  convnorm_plan* plan = reinterpret_cast<convnorm_plan*>(16);
  EXPECT_EQ(convnorm_plan_create(&problem, nullptr, &plan), CONVNORM_INVALID_ARGUMENT);
  EXPECT_EQ(plan, reinterpret_cast<convnorm_plan*>(16)) << "written although it failed";
}

TEST(CAbi, TheLastErrorBelongsToItsThread) {
  convnorm_problem problem;
  convnorm_problem_parse("n=mine", &problem);
  const std::string mine = convnorm_last_error();
  std::thread([] {
    EXPECT_STREQ(convnorm_last_error(), "");
    convnorm_problem other;
    convnorm_problem_parse("n=other", &other);
    EXPECT_THAT(convnorm_last_error(), HasSubstr("other"));
  }).join();
  EXPECT_EQ(convnorm_last_error(), mine);
}

TEST(CAbi, ListsEndInNull) {
  int count = 0;
  while (convnorm_path_name(CONVNORM_CPU, count) != nullptr) ++count;
  ASSERT_GT(count, 0);
  EXPECT_STREQ(convnorm_path_name(CONVNORM_CPU, count - 1), "reference");
  EXPECT_EQ(convnorm_path_name(CONVNORM_CPU, -1), nullptr);
  EXPECT_EQ(convnorm_path_name(CONVNORM_CUDA, 100), nullptr);
  EXPECT_EQ(convnorm_target_name(-1), nullptr);
  EXPECT_EQ(convnorm_target_name(1000), nullptr);
}

TEST(CAbi, EveryStatusHasASentence) {
  for (int status = CONVNORM_OK; status <= CONVNORM_INTERNAL_ERROR; ++status) {
    EXPECT_STRNE(convnorm_status_string(static_cast<convnorm_status>(status)), "not a status of convnorm");
  }
  EXPECT_STREQ(convnorm_status_string(static_cast<convnorm_status>(99)), "not a status of convnorm");
}

TEST(CAbi, B106_InfoNamesVersionAndDevices) {
  std::vector<char> text(10000);
  for (const convnorm_format format : {CONVNORM_TEXT, CONVNORM_JSON}) {
    ASSERT_EQ(convnorm_info(format, text.data(), text.size(), nullptr), CONVNORM_OK);
    EXPECT_THAT(text.data(), AllOf(HasSubstr(convnorm_version()), HasSubstr("cuda"), HasSubstr("reference")));
  }
  EXPECT_EQ(convnorm_info(static_cast<convnorm_format>(2), text.data(), text.size(), nullptr),
            CONVNORM_INVALID_ARGUMENT);
}

TEST(CAbi, WorksFromC) { EXPECT_EQ(convnorm_test_from_c(), 1); }

}  // namespace
}  // namespace convnorm::test
