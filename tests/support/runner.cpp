#include "support/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "descriptor/elements.hpp"
#include "support/device_block.hpp"
#include "support/guarded.hpp"
#include "support/pools.hpp"

namespace convnorm::test {

namespace {

constexpr size_t kWorkspaceAllowance = size_t{64} << 20;  // above y

struct DestroyPlan {
  void operator()(convnorm_plan* plan) const { convnorm_plan_destroy(plan); }
};
using Plan = std::unique_ptr<convnorm_plan, DestroyPlan>;

// Where element (n, c, l) of a (N, C, L) tensor lies in the problem's layout.
int64_t place(convnorm_layout layout, int64_t n, int64_t c, int64_t l, int64_t channels, int64_t length) {
  return layout == CONVNORM_NCL ? (n * channels + c) * length + l : (n * length + l) * channels + c;
}

template <class Use>
void for_each_element(const Problem& p, int64_t channels, int64_t length, const Use& use) {
  size_t i = 0;
  for (int64_t n = 0; n < p.n; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t l = 0; l < length; ++l) use(i++, place(p.layout, n, c, l, channels, length));
    }
  }
}

// An input in guarded memory, with what it held before the call.
class Given {
 public:
  Given(const char* name, const std::vector<float>& values, convnorm_dtype dtype, int misalignment)
      : name_(name), memory_(values.size() * bytes(dtype), static_cast<size_t>(misalignment) * bytes(dtype)) {
    absent_ = values.empty();
    for (size_t i = 0; i < values.size(); ++i) put(dtype, static_cast<int64_t>(i), values[i]);
    settle(static_cast<size_t>(misalignment) * bytes(dtype));
  }
  // An activation, turned from (N, C, L) to the problem's layout.
  Given(const char* name, const std::vector<float>& values, const Problem& p, int64_t channels, int64_t length,
        int misalignment)
      : name_(name), memory_(values.size() * bytes(p.dtype), static_cast<size_t>(misalignment) * bytes(p.dtype)) {
    for_each_element(p, channels, values.empty() ? 0 : length,
                     [&](size_t i, int64_t at) { put(p.dtype, at, values[i]); });
    absent_ = values.empty();
    settle(static_cast<size_t>(misalignment) * bytes(p.dtype));
  }
  explicit Given(const std::vector<int64_t>& lengths)
      : name_("lengths"), memory_(lengths.size() * sizeof(int64_t)), absent_(lengths.empty()) {
    if (!absent_) std::memcpy(memory_.data(), lengths.data(), memory_.size());
    settle(0);
  }

  const void* pointer() const { return absent_ ? nullptr : block_ ? block_->data() : memory_.data(); }
  std::string fault() {
    if (block_) {
      if (!block_->bands_intact()) return fmt::format("memory around {} was written", name_);
      block_->copy_to(memory_.data());
    }
    if (!memory_.bands_intact()) return fmt::format("memory around {} was written", name_);
    return memory_.equals(before_) ? "" : fmt::format("{} was changed", name_);
  }

 private:
  static size_t bytes(convnorm_dtype dtype) { return static_cast<size_t>(element_size(dtype)); }
  void put(convnorm_dtype dtype, int64_t at, float value) {
    with_element_type(dtype, [&](auto type) {
      const decltype(type) element(static_cast<double>(value));
      std::memcpy(memory_.data() + static_cast<size_t>(at) * sizeof(element), &element, sizeof(element));
    });
  }

  void settle(size_t misalignment) {
    before_ = memory_.copy();
    if (test_device() == CONVNORM_CUDA && !absent_) {
      block_ = std::make_unique<DeviceBlock>(memory_.data(), memory_.size(), misalignment);
    }
  }

  const char* name_;
  Guarded memory_;
  std::unique_ptr<DeviceBlock> block_;  // what a GPU is given in place of memory_
  std::vector<std::byte> before_;
  bool absent_ = false;
};

nlohmann::json explained(const convnorm_plan* plan) {
  size_t needed = 0;
  convnorm_plan_explain(plan, nullptr, CONVNORM_JSON, nullptr, 0, &needed);
  std::string text(needed, '\0');
  convnorm_plan_explain(plan, nullptr, CONVNORM_JSON, text.data(), text.size(), &needed);
  return nlohmann::json::parse(text.c_str());
}

Arithmetic arithmetic_of(const nlohmann::json& explanation) {
  if (explanation.at("path") == "reference") return Arithmetic::double_precision;
  return static_cast<Arithmetic>(explanation.at("split_parts").get<int>());
}

std::string prefixed(const Outcome& outcome, const std::string& fault) {
  return fault.empty() ? "" : fmt::format("{} on {}: {}", outcome.path, outcome.target, fault);
}

}  // namespace

struct Prepared::State {
  State(const Inputs& in, const Request& request)
      : pool(request.pool),
        weight("w", in.w, in.problem.dtype, request.misalignment),
        x("x", in.x, in.problem, in.problem.c, in.problem.l, request.misalignment),
        residual("residual", in.residual, in.problem, in.sizes.c_y, in.sizes.l_out, request.misalignment),
        bias(parameter("bias", in.bias, in, request)),
        gamma(parameter("gamma", in.gamma, in, request)),
        beta(parameter("beta", in.beta, in, request)),
        pre_slope(parameter("pre_slope", in.pre_slope, in, request)),
        post_slope(parameter("post_slope", in.post_slope, in, request)),
        film_scale(parameter("film_scale", in.film_scale, in, request)),
        film_shift(parameter("film_shift", in.film_shift, in, request)),
        lengths(in.lengths),
        misalignment(static_cast<size_t>(request.misalignment * element_size(in.problem.dtype))),
        y_bytes(static_cast<size_t>(in.sizes.y_elements * element_size(in.problem.dtype))) {
    make_plan(in, request);
    if (!fault.empty() || !plan) return;
    packed = std::make_unique<Guarded>(convnorm_plan_packed_size(plan.get()));
    if (test_device() == CONVNORM_CUDA) packed_block = std::make_unique<DeviceBlock>(packed->data(), packed->size());
    const convnorm_launch launch = launch_now();
    if (convnorm_pack_weight(plan.get(), weight.pointer(), packed_pointer(), packed->size(), &launch) != CONVNORM_OK) {
      fault = fmt::format("packing failed: {}", convnorm_last_error());
    }
    if (packed_block) packed_block->copy_to(packed->data());
    packed_before = packed->copy();
    tensors = {.x = x.pointer(),
               .packed_weight = packed_pointer(),
               .bias = bias.pointer(),
               .gamma = gamma.pointer(),
               .beta = beta.pointer(),
               .lengths = static_cast<const int64_t*>(lengths.pointer()),
               .pre_slope = pre_slope.pointer(),
               .post_slope = post_slope.pointer(),
               .film_scale = film_scale.pointer(),
               .film_shift = film_shift.pointer(),
               .residual = residual.pointer(),
               .y = nullptr,
               .pre_slope_per_channel = in.pre_slope.size() > 1,
               .post_slope_per_channel = in.post_slope.size() > 1,
               .param_dtype = in.param_dtype};
  }

  convnorm_launch launch_now() const {
    return {.parallel_for = pool,
            .parallel_context = nullptr,
            .stream = test_device() == CONVNORM_CUDA ? thread_stream() : nullptr};
  }
  std::byte* packed_pointer() const { return packed_block ? packed_block->data() : packed->data(); }

  static Given parameter(const char* name, const std::vector<float>& values, const Inputs& in, const Request& request) {
    return Given(name, values, in.param_dtype, request.misalignment);
  }

  void make_plan(const Inputs& in, const Request& request) {
    const convnorm_plan_options options{.device = test_device(),
                                        .threads = request.threads,
                                        .path = request.path.empty() ? nullptr : request.path.c_str(),
                                        .target = request.target.empty() ? nullptr : request.target.c_str()};
    convnorm_plan* made = nullptr;
    const convnorm_status status = convnorm_plan_create(&in.problem, &options, &made);
    plan.reset(made);
    if (status == CONVNORM_UNSUPPORTED && !request.path.empty()) {
      refusal = convnorm_last_error();
    } else if (status != CONVNORM_OK) {
      fault = fmt::format("no plan: {}", convnorm_last_error());
    } else {
      const std::string path = convnorm_plan_path(made), target = convnorm_plan_target(made);
      const std::string wanted = path == "reference" ? "scalar" : request.target;
      if (!request.path.empty() && path != request.path) fault = fmt::format("path {} was asked for", request.path);
      if (!wanted.empty() && target != wanted) fault = fmt::format("target {} was asked for", wanted);
    }
  }

  std::string refusal, fault;
  Plan plan;
  convnorm_parallel_for pool;
  Given weight, x, residual, bias, gamma, beta, pre_slope, post_slope, film_scale, film_shift, lengths;
  size_t misalignment, y_bytes;
  std::unique_ptr<Guarded> packed;
  std::unique_ptr<DeviceBlock> packed_block;
  std::vector<std::byte> packed_before;
  convnorm_tensors tensors{};
};

Prepared::Prepared(const Inputs& inputs, const Request& request) : state_(std::make_unique<State>(inputs, request)) {}
Prepared::~Prepared() = default;
const std::string& Prepared::refusal() const { return state_->refusal; }
const std::string& Prepared::fault() const { return state_->fault; }
const convnorm_plan* Prepared::plan() const { return state_->plan.get(); }
size_t Prepared::workspace_bytes() const { return convnorm_plan_workspace_size(plan()); }

std::string Prepared::execute(void* y, void* workspace) const {
  convnorm_tensors tensors = state_->tensors;
  const convnorm_launch launch = state_->launch_now();
  const auto call = [&](void* y_memory, void* workspace_memory) -> std::string {
    tensors.y = y_memory;
    if (convnorm_execute(plan(), &tensors, workspace_memory, workspace_bytes(), &launch) == CONVNORM_OK) return "";
    return fmt::format("executing failed: {}", convnorm_last_error());
  };
  if (test_device() == CONVNORM_CPU) return call(y, workspace);
  const DeviceBlock y_block(y, state_->y_bytes, state_->misalignment);
  const DeviceBlock workspace_block(workspace, workspace_bytes(), state_->misalignment);
  const std::string fault = call(y_block.data(), workspace_block.data());
  if (!fault.empty()) return fault;
  if (!y_block.bands_intact()) return "memory around y was written";
  if (!workspace_block.bands_intact()) return "memory around the workspace was written";
  y_block.copy_to(y);
  return "";
}

std::string Prepared::inputs_intact() const {
  State& s = *state_;
  for (Given* input : {&s.weight, &s.x, &s.residual, &s.bias, &s.gamma, &s.beta, &s.pre_slope, &s.post_slope,
                       &s.film_scale, &s.film_shift, &s.lengths}) {
    if (const std::string fault = input->fault(); !fault.empty()) return fault;
  }
  if (s.packed_block) s.packed_block->copy_to(s.packed->data());
  if (!s.packed->bands_intact() || (s.packed_block && !s.packed_block->bands_intact()) ||
      !s.packed->equals(s.packed_before))
    return "the packed weight or its surroundings were written";
  return "";
}

Outcome run(const Inputs& in, const Request& request) {
  Outcome out;
  out.path = request.path, out.target = request.target;
  const Prepared prepared(in, request);
  out.refusal = prepared.refusal(), out.fault = prepared.fault();
  if (prepared.plan() == nullptr) return out;
  out.accepted = true;
  out.path = convnorm_plan_path(prepared.plan());
  out.target = convnorm_plan_target(prepared.plan());
  if (!out.fault.empty()) return out;
  out.workspace_bytes = prepared.workspace_bytes();
  const nlohmann::json explanation = explained(prepared.plan());
  out.z_bytes = explanation.at("z_bytes").get<double>();
  out.arithmetic = arithmetic_of(explanation);

  const Problem& p = in.problem;
  const Sizes& s = in.sizes;
  const auto element = static_cast<size_t>(element_size(p.dtype));
  Guarded y(static_cast<size_t>(s.y_elements) * element, static_cast<size_t>(request.misalignment) * element);
  Guarded workspace(out.workspace_bytes, static_cast<size_t>(request.misalignment));
  out.fault = prepared.execute(y.data(), workspace.data());
  if (!out.fault.empty()) return out;
  out.fault = prepared.inputs_intact();
  if (!y.bands_intact()) out.fault = "memory around y was written";
  if (!workspace.bands_intact()) out.fault = "memory around the workspace was written";
  out.bytes = y.copy();
  out.y.resize(static_cast<size_t>(s.y_elements));
  for_each_element(p, s.c_y, s.l_out, [&](size_t i, int64_t at) { out.y[i] = load_element(y.data(), p.dtype, at); });
  return out;
}

convnorm_device test_device() {
  static const convnorm_device device = [] {
    const char* wanted = std::getenv("CONVNORM_TEST_DEVICE");
    return wanted != nullptr && std::string_view(wanted) == "cuda" ? CONVNORM_CUDA : CONVNORM_CPU;
  }();
  return device;
}

Arithmetic arithmetic_of(const convnorm_plan* plan) { return arithmetic_of(explained(plan)); }

std::vector<std::string> targets() {
  if (test_device() == CONVNORM_CUDA) return {""};
  std::vector<std::string> names;
  for (int32_t i = 0; const char* name = convnorm_target_name(i); ++i) names.emplace_back(name);
  if (std::find(names.begin(), names.end(), "scalar") == names.end()) names.emplace_back("scalar");
  return names;
}

std::vector<std::string> paths() {
  std::vector<std::string> names;
  for (int32_t i = 0; const char* name = convnorm_path_name(test_device(), i); ++i) names.emplace_back(name);
  return names;
}

std::string on_every_path(const Inputs& in, const std::function<std::string(const Outcome&)>& use, int misalignment) {
  for (const std::string& target : targets()) {
    std::string first;
    for (const std::string& path : paths()) {
      const Outcome outcome = run(in, {.path = path, .target = target, .misalignment = misalignment});
      if (!outcome.fault.empty()) return prefixed(outcome, outcome.fault);
      if (!outcome.accepted) continue;
      if (first.empty()) first = path;
      if (const std::string fault = use(outcome); !fault.empty()) return prefixed(outcome, fault);
    }
    if (first.empty()) return fmt::format("no path accepts on {}", target);
    const Outcome planned = run(in, {.target = target, .misalignment = misalignment});
    if (!planned.fault.empty()) return prefixed(planned, planned.fault);
    // GPUs choose by expected time.
    if (planned.path != first && test_device() == CONVNORM_CPU)
      return prefixed(planned, fmt::format("planned, but {} comes first and accepts", first));
    if (const std::string fault = use(planned); !fault.empty()) return prefixed(planned, fault);
  }
  return "";
}

std::string check_every_path(const Inputs& in, std::vector<std::string>* taken, int misalignment) {
  const Expected expected(in);
  return on_every_path(
      in,
      [&](const Outcome& outcome) {
        if (taken) taken->push_back(outcome.path);
        return compare(in, expected, outcome.y, outcome.arithmetic);
      },
      misalignment);
}

std::string check_same_bits(const Inputs& in) {
  const Request variations[] = {{.threads = 1},
                                {.threads = 1},
                                {.threads = 2},
                                {.threads = 3, .pool = reversed},
                                {.threads = 7, .pool = in_order},
                                {.threads = 7, .pool = thread_each}};
  for (const std::string& target : targets()) {
    std::map<std::string, std::vector<std::byte>> seen;
    std::string bits_from;
    for (const std::string& path : paths()) {
      // Two paths take statistics in ways of their own, and those of a GPU sum each in its own order: they repeat
      // themselves, not the others.
      const bool own_bits = path == "reference" || path == "moments" || test_device() == CONVNORM_CUDA;
      std::vector<std::byte>& same = seen[own_bits ? path : "the others"];
      for (Request request : variations) {
        request.path = path, request.target = target;
        const Outcome outcome = run(in, request);
        if (!outcome.fault.empty()) return prefixed(outcome, outcome.fault);
        if (!outcome.accepted) continue;
        const size_t allowed = outcome.bytes.size() + kWorkspaceAllowance;
        if (path != "reference" && outcome.workspace_bytes > allowed) {
          return prefixed(
              outcome, fmt::format("the workspace of {} bytes exceeds y by more than 64 MiB", outcome.workspace_bytes));
        }
        constexpr std::string_view kStoring[] = {"reference", "split", "any_arch", "sm90_two_pass"};
        if (outcome.z_bytes != 0 && std::find(std::begin(kStoring), std::end(kStoring), path) == std::end(kStoring))
          return prefixed(outcome, "it stores the convolution");
        if (same.empty()) {
          same = outcome.bytes;
          bits_from = path;
        } else if (same != outcome.bytes) {
          const size_t at =
              static_cast<size_t>(std::mismatch(same.begin(), same.end(), outcome.bytes.begin()).first - same.begin());
          return prefixed(outcome,
                          fmt::format("{} threads, pool {}: other bits than {} at byte {} of y", request.threads,
                                      request.pool == nullptr    ? "own"
                                      : request.pool == in_order ? "in_order"
                                      : request.pool == reversed ? "reversed"
                                                                 : "thread_each",
                                      bits_from, at));
        }
      }
    }
  }
  return "";
}

}  // namespace convnorm::test
