#include "cli/options.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/library.hpp"

namespace convnorm::cli {
namespace {

TEST(Device, AutoFollowsWhatElseWasAskedFor) {
  const convnorm_device open = gpu_is_usable() ? CONVNORM_CUDA : CONVNORM_CPU;
  EXPECT_EQ(PlanFlags{}.chosen_device(), open);
  EXPECT_EQ(PlanFlags{.threads = 2}.chosen_device(), CONVNORM_CPU);
  EXPECT_EQ(PlanFlags{.on_cpu_alone = true}.chosen_device(), CONVNORM_CPU);
  EXPECT_EQ(PlanFlags{.path = "reference"}.chosen_device(), CONVNORM_CPU);
  EXPECT_EQ(PlanFlags{.target = "scalar"}.chosen_device(), CONVNORM_CPU);
  EXPECT_EQ(PlanFlags{.target = "sm_90"}.chosen_device(), CONVNORM_CUDA);
  const std::vector<std::string> gpu_paths = path_names(CONVNORM_CUDA);
  const bool of_both = std::ranges::count(gpu_paths, "recompute") > 0;
  EXPECT_EQ(PlanFlags{.path = "recompute"}.chosen_device(), of_both ? open : CONVNORM_CPU);
  if (!gpu_paths.empty()) {
    EXPECT_EQ(PlanFlags{.path = "any_arch"}.chosen_device(), CONVNORM_CUDA);
  }
  EXPECT_EQ((PlanFlags{.device = "cuda", .threads = 2}.chosen_device()), CONVNORM_CUDA);
}

TEST(Device, OneOfSeveralIsChosenByTheEnvironment) {
  CLI::App app;
  std::string device = "auto";
  add_device_flag(app, device, "either");
  try {
    app.parse("--device cuda:1");
    ADD_FAILURE() << device;
  } catch (const CLI::ParseError& error) {
    EXPECT_NE(std::string(error.what()).find("CUDA_VISIBLE_DEVICES=1"), std::string::npos) << error.what();
  }
  app.parse("--device cuda");
  EXPECT_EQ(device, "cuda");
}

}  // namespace
}  // namespace convnorm::cli
