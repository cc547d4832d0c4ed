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

// As cuda::kUseTheCpu.
constexpr char kUseTheGpu[] = "use CONVNORM_CUDA (--device cuda)";

bool among(const std::vector<const char*>& names, std::string_view name) {
  return std::ranges::any_of(names, [name](const char* each) { return name == each; });
}

// A path of the other registry is known, and no mistake in spelling.
void require_path_of(convnorm_device device, const char* path) {
  const auto has = [path](convnorm_device which) {
    return std::ranges::any_of(registry(which),
                               [path](const Implementation& each) { return std::string_view(path) == each.name; });
  };
  if (path == nullptr || has(device) || registry(device).empty()) return;
  if (device == CONVNORM_CUDA && has(CONVNORM_CPU)) {
    fail(CONVNORM_INVALID_ARGUMENT, "path {} is one of CPUs; {}, or one of {}", path, cuda::kUseTheCpu,
         path_names(registry(device)));
  }
  if (device == CONVNORM_CPU && has(CONVNORM_CUDA)) {
    fail(CONVNORM_INVALID_ARGUMENT, "path {} is one of GPUs; {}, or one of {}", path, kUseTheGpu,
         path_names(registry(device)));
  }
}

std::string gpu_target(const cuda::DeviceLimits& gpu, const char* wanted) {
  if (wanted != nullptr && (wanted == kScalar || among(cpu::compiled_targets(), wanted))) {
    fail(CONVNORM_INVALID_ARGUMENT, "target {} is an instruction set of CPUs; {}, or leave the target open", wanted,
         cuda::kUseTheCpu);
  }
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
  if (wanted == kScalar || among(available, wanted)) return wanted;
  const std::string choices = fmt::format("{}{}{}, which the reference alone takes", fmt::join(available, ", "),
                                          available.empty() ? "" : ", ", kScalar);
  if (among(cpu::compiled_targets(), wanted)) {
    fail(CONVNORM_UNSUPPORTED, "target {} is not in this machine; use one of {}", wanted, choices);
  }
  if (std::string_view(wanted).starts_with("sm_")) {
    fail(CONVNORM_INVALID_ARGUMENT, "target {} is one of GPUs; {}, or one of {}", in_quotes(wanted), kUseTheGpu,
         choices);
  }
  fail(CONVNORM_INVALID_ARGUMENT, "target {} is not in this build; use one of {}", in_quotes(wanted), choices);
}

Choice choose(std::span<const Implementation> implementations, const PlanRequest& request, const char* path) {
  Choice best{};
  double best_us = 0;
  std::vector<std::pair<std::string, double>> alternatives;
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
      alternatives.emplace_back(implementation.name, us);
      continue;
    }
    if (best.executable != nullptr) alternatives.emplace_back(best.implementation->name, best_us);
    best.implementation = &implementation, best.executable = std::move(executable), best_us = us;
    if (us == 0) break;
  }
  if (best.executable != nullptr) {
    std::ranges::stable_sort(alternatives, {}, &std::pair<std::string, double>::second);
    best.alternatives = std::move(alternatives);
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

  require_path_of(options.device, options.path);
  auto plan = std::make_unique<convnorm_plan>();
  plan->problem = canonical(problem);
  plan->threads = choose_threads(options.threads);
  if (options.device == CONVNORM_CUDA) plan->gpu = cuda::current_device();
  const PlanRequest request{plan->problem,
                            Sizes(plan->problem),
                            plan->threads,
                            plan->gpu ? gpu_target(*plan->gpu, options.target) : choose_target(options.target),
                            plan->gpu ? &*plan->gpu : nullptr,
                            options.constant_weights != 0};

  Choice choice = choose(registry(options.device), request, options.path);
  plan->implementation = choice.implementation;
  plan->executable = std::move(choice.executable);
  plan->path_was_named = options.path != nullptr;
  plan->alternatives = std::move(choice.alternatives);
  plan->refusals = std::move(choice.refusals);
  plan->target = choice.implementation->vectorised ? request.target : kScalar;
  plan->fingerprint =
      fnv1a(fmt::format("{}/{}/{}", choice.implementation->name, plan->target, plan->executable->packing()),
            hash(plan->problem));
  plan->executable->prepare();
  return plan;
}

}  // namespace convnorm
