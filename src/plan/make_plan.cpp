#include <algorithm>
#include <string_view>

#include "descriptor/text.hpp"
#include "kernels/cpu/targets.hpp"
#include "plan/default_pool.hpp"
#include "plan/plan.hpp"

namespace convnorm {

namespace {

constexpr int kMostThreads = 4096;
constexpr std::string_view kScalar = "scalar";

std::string path_names(std::span<const Implementation> implementations) {
  std::string names;
  for (const Implementation& each : implementations) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

Answer consider(const Implementation& implementation, const PlanRequest& request) {
  if (implementation.vectorised && request.target == kScalar) {
    return Refusal{"it needs a vector instruction set, and the target is scalar"};
  }
  return implementation.consider(request);
}

std::string slower(double expected_us) {
  return fmt::format("it accepts, and is expected to be slower, at {:.3g} us", expected_us);
}

std::string gpu_target(const cuda::DeviceLimits& gpu, const char* wanted) {
  if (wanted != nullptr && wanted != gpu.architecture()) {
    fail(CONVNORM_UNSUPPORTED, "target {} is not the architecture of device {} ({}); use {}, or leave the target open",
         in_quotes(wanted), gpu.ordinal, gpu.name, gpu.architecture());
  }
  return gpu.architecture();
}

}  // namespace

int choose_threads(int32_t wanted) {
  if (wanted < 0 || wanted > kMostThreads) {
    fail(CONVNORM_INVALID_ARGUMENT, "threads={} must lie between 1 and {}, or be 0 for as many as the default pool has",
         wanted, kMostThreads);
  }
  return wanted == 0 ? std::clamp(default_threads(), 1, kMostThreads) : wanted;
}

std::string choose_target(const char* wanted) {
  const std::vector<const char*>& available = cpu::available_targets();
  if (wanted == nullptr) return available.empty() ? std::string(kScalar) : available.front();
  const auto among = [wanted](const std::vector<const char*>& names) {
    return std::any_of(names.begin(), names.end(),
                       [wanted](const char* name) { return std::string_view(name) == wanted; });
  };
  if (wanted == kScalar || among(available)) return wanted;
  const std::string choices = fmt::format("{}{}{}", fmt::join(available, ", "), available.empty() ? "" : ", ", kScalar);
  if (among(cpu::compiled_targets())) {
    fail(CONVNORM_UNSUPPORTED, "target {} is not in this machine; use one of {}", wanted, choices);
  }
  fail(CONVNORM_INVALID_ARGUMENT, "target {} is not in this build; use one of {}", in_quotes(wanted), choices);
}

Choice choose(std::span<const Implementation> implementations, const PlanRequest& request, const char* path) {
  Choice best{};
  double best_us = 0;
  std::vector<std::pair<std::string, std::string>> refusals;
  for (const Implementation& implementation : implementations) {
    if (path != nullptr && std::string_view(path) != implementation.name) continue;
    Answer answer = consider(implementation, request);
    if (const auto* refusal = std::get_if<Refusal>(&answer)) {
      if (path != nullptr) {
        fail(CONVNORM_UNSUPPORTED, "path {} refuses this problem: {}; leave the path open to take one that accepts",
             path, refusal->reason);
      }
      refusals.emplace_back(implementation.name, refusal->reason);
      continue;
    }
    auto executable = std::move(std::get<std::unique_ptr<Executable>>(answer));
    const double us = executable->expected_us();
    if (best.executable != nullptr && us >= best_us) {
      refusals.emplace_back(implementation.name, slower(us));
      continue;
    }
    if (best.executable != nullptr) refusals.emplace_back(best.implementation->name, slower(best_us));
    best.implementation = &implementation, best.executable = std::move(executable), best_us = us;
    if (us == 0) break;
  }
  if (best.executable != nullptr) {
    best.refusals = std::move(refusals);
    return best;
  }
  if (path == nullptr) fail(CONVNORM_INTERNAL_ERROR, "every path refused {}", print_problem(request.problem));
  fail(CONVNORM_INVALID_ARGUMENT, "path {} is not known; use one of {}", in_quotes(path), path_names(implementations));
}

std::unique_ptr<convnorm_plan> make_plan(const Problem& problem, const convnorm_plan_options& options) {
  validate(problem);
  if (options.device != CONVNORM_CPU && options.device != CONVNORM_CUDA) {
    fail(CONVNORM_INVALID_ARGUMENT, "device has the value {}, which is neither CONVNORM_CPU nor CONVNORM_CUDA",
         static_cast<int>(options.device));
  }
  if (options.constant_weights != 0 && options.constant_weights != 1) {
    fail(CONVNORM_INVALID_ARGUMENT, "constant_weights={} must be 1 for the promise that convnorm.h describes, or 0",
         options.constant_weights);
  }

  auto plan = std::make_unique<convnorm_plan>();
  plan->problem = canonical(problem);
  plan->threads = choose_threads(options.threads);
  if (options.device == CONVNORM_CUDA) plan->gpu = cuda::current_device();
  const PlanRequest request{plan->problem, Sizes(plan->problem), plan->threads,
                            plan->gpu ? gpu_target(*plan->gpu, options.target) : choose_target(options.target),
                            plan->gpu ? &*plan->gpu : nullptr, options.constant_weights != 0};

  Choice choice = choose(registry(options.device), request, options.path);
  plan->implementation = choice.implementation;
  plan->executable = std::move(choice.executable);
  plan->refusals = std::move(choice.refusals);
  plan->target = choice.implementation->vectorised ? request.target : kScalar;
  plan->fingerprint =
      fnv1a(fmt::format("{}/{}/{}", choice.implementation->name, plan->target, plan->executable->packing()),
            hash(plan->problem));
  plan->executable->prepare();
  return plan;
}

}  // namespace convnorm
