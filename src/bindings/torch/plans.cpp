#include "bindings/torch/plans.hpp"

#include <functional>
#include <stdexcept>
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

std::shared_ptr<const Plan> create(const PlanKey& key) {
  convnorm_problem problem;
  expect_ok(convnorm_problem_parse(problem_line(key).c_str(), &problem));
  return create(
      problem,
      {.device = key.device, .threads = key.threads, .path = nullptr, .target = nullptr, .constant_weights = 0});
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
