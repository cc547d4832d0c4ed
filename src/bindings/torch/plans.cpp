#include "bindings/torch/plans.hpp"

#include <cctype>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace convnorm_torch {

namespace {

// A plan holds no tensor-sized memory, so that many are cheap; the bound is for inputs whose length always differs.
constexpr size_t kMostPlans = 1024;

const char* dtype_key(convnorm_dtype dtype) {
  switch (dtype) {
    case CONVNORM_F16:
      return "f16";
    case CONVNORM_BF16:
      return "bf16";
    default:
      return "f32";
  }
}

std::string problem_line(const PlanKey& key) {
  const auto part = [](const char* name, int64_t value) {
    return std::string(name) + "=" + std::to_string(value) + ",";
  };
  return part("n", key.n) + part("c", key.c) + part("l", key.l) + part("o", key.o) + part("k", key.k) +
         part("bias", key.bias) + part("affine", key.affine) + part("lengths", key.lengths) +
         "dtype=" + dtype_key(key.dtype) + "," + key.attributes;
}

std::shared_ptr<const Plan> create(const convnorm_problem& problem, const convnorm_plan_options& options) {
  auto plan = std::make_shared<Plan>();
  plan->problem = problem;
  expect_ok(convnorm_plan_create(&plan->problem, &options, &plan->handle));
  plan->packed_bytes = convnorm_plan_packed_size(plan->handle);
  plan->workspace_bytes = convnorm_plan_workspace_size(plan->handle);
  plan->c_y = convnorm_problem_output_channels(&plan->problem);
  plan->l_out = convnorm_problem_output_length(&plan->problem);
  return plan;
}

// A library's sentence with what its keys are called in Python, because its reader may never have seen a problem line.
std::string with_python_names(const std::string& sentence) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"n", "batch of x"},     {"c", "channels of x"}, {"l", "length of x"}, {"o", "C_out of weight"},
      {"k", "K of weight"},    {"s", "stride"},        {"d", "dilation"},    {"p", "padding"},
      {"pad", "padding_mode"}, {"cg", "groups"},       {"g", "num_groups"},  {"affine", "gamma and beta"},
      {"post", "activation"},
  };
  std::string names;
  for (const auto& [key, name] : kNames) {
    const std::string wanted = std::string(key) + "=";
    for (size_t at = sentence.find(wanted); at != std::string::npos; at = sentence.find(wanted, at + 1)) {
      if (at != 0 && (std::isalnum(static_cast<unsigned char>(sentence[at - 1])) || sentence[at - 1] == '_')) continue;
      names += (names.empty() ? " (" : ", ") + std::string(key) + ": " + name;
      break;
    }
  }
  return names.empty() ? sentence : sentence + names + ")";
}

std::shared_ptr<const Plan> create(const PlanKey& key) {
  try {
    convnorm_problem problem;
    expect_ok(convnorm_problem_parse(problem_line(key).c_str(), &problem));
    return create(
        problem,
        {.device = key.device, .threads = key.threads, .path = nullptr, .target = nullptr, .constant_weights = 0});
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(with_python_names(error.what()));
  }
}

}  // namespace

std::shared_ptr<const Plan> with_constant_weights(const Plan& plan) {
  return create(plan.problem, {.device = CONVNORM_CUDA,
                               .threads = 0,
                               .path = convnorm_plan_path(plan.handle),
                               .target = nullptr,
                               .constant_weights = 1});
}

void expect_ok(convnorm_status status) {
  if (status != CONVNORM_OK) throw std::runtime_error(std::string("convnorm: ") + convnorm_last_error());
}

size_t PlanKeyHash::operator()(const PlanKey& key) const {
  size_t hash = std::hash<std::string>{}(key.attributes);
  for (const int64_t value :
       {key.n, key.c, key.l, key.o, key.k, int64_t{key.dtype}, int64_t{key.bias}, int64_t{key.affine},
        int64_t{key.lengths}, int64_t{key.device}, int64_t{key.device_index}, int64_t{key.threads}}) {
    hash = (hash ^ static_cast<size_t>(value)) * 0x100000001b3u;
  }
  return hash;
}

std::shared_ptr<const Plan> PlanCache::find_or_create(PlanKey key) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  }
  // Without the lock, so that one slow plan does not hold up the others; of two equal ones the first to arrive stays.
  auto plan = create(key);
  const std::lock_guard lock(mutex_);
  const auto [place, inserted] = plans_.try_emplace(std::move(key), std::move(plan));
  const std::shared_ptr<const Plan> chosen = place->second;
  if (inserted) {
    in_order_.push_back(&place->first);
    if (in_order_.size() > kMostPlans) {
      plans_.erase(plans_.find(*in_order_.front()));
      in_order_.pop_front();
    }
  }
  return chosen;
}

}  // namespace convnorm_torch
