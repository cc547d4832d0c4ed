#include "cli/library.hpp"

#include <nlohmann/json.hpp>

#include "cli/failure.hpp"

namespace convnorm::cli {
namespace {

// The size protocol of the C interface: ask for the size, then for the text.
template <class Write>
std::string sized_text(Write write) {
  size_t needed = 0;
  const convnorm_status status = write(nullptr, 0, &needed);
  if (status != CONVNORM_OK && status != CONVNORM_BUFFER_TOO_SMALL) require(status);
  std::string text(needed, '\0');
  require(write(text.data(), text.size(), &needed));
  text.resize(needed == 0 ? 0 : needed - 1);
  return text;
}

convnorm_plan* create(const convnorm_problem& problem, const convnorm_plan_options& options) {
  convnorm_plan* plan = nullptr;
  require(convnorm_plan_create(&problem, &options, &plan));
  return plan;
}

template <class Name>
std::vector<std::string> names(Name name) {
  std::vector<std::string> all;
  for (int32_t i = 0; const char* next = name(i); ++i) all.emplace_back(next);
  return all;
}

}  // namespace

void require(convnorm_status status) {
  if (status == CONVNORM_OK) return;
  const std::string detail = convnorm_last_error();
  throw BadInput(detail.empty() ? convnorm_status_string(status) : detail);
}

convnorm_problem parse_line(const std::string& line) {
  convnorm_problem problem;
  require(convnorm_problem_parse(line.c_str(), &problem));
  return problem;
}

std::string print_line(const convnorm_problem& problem) {
  return sized_text([&](char* buffer, size_t capacity, size_t* needed) {
    return convnorm_problem_print(&problem, buffer, capacity, needed);
  });
}

const char* dtype_name(convnorm_dtype dtype) {
  switch (dtype) {
    case CONVNORM_F32:
      return "f32";
    case CONVNORM_F16:
      return "f16";
    case CONVNORM_BF16:
      return "bf16";
  }
  throw BadInput("dtype " + std::to_string(static_cast<int>(dtype)) + " is unknown; use f32, f16 or bf16");
}

size_t dtype_size(convnorm_dtype dtype) { return dtype == CONVNORM_F32 ? 4 : 2; }

double flops(const convnorm_problem& p) {
  const double outputs =
      static_cast<double>(p.n) * static_cast<double>(p.o) * static_cast<double>(convnorm_problem_output_length(&p));
  return 2.0 * outputs * static_cast<double>(p.c / p.conv_groups) * static_cast<double>(p.k);
}

Plan::Plan(const convnorm_problem& problem, const convnorm_plan_options& options)
    : problem_(problem),
      on_gpu_(options.device == CONVNORM_CUDA),
      handle_(create(problem, options), &convnorm_plan_destroy) {}

void Plan::pack(const void* weight, void* packed, void* stream) const {
  const convnorm_launch launch{.parallel_for = nullptr, .parallel_context = nullptr, .stream = stream};
  require(convnorm_pack_weight(handle_.get(), weight, packed, packed_size(), &launch));
}

void Plan::execute(const convnorm_tensors& tensors, void* workspace, void* stream) const {
  const convnorm_launch launch{.parallel_for = nullptr, .parallel_context = nullptr, .stream = stream};
  require(convnorm_execute(handle_.get(), &tensors, workspace, workspace_size(), &launch));
}

std::string Plan::explain(const convnorm_machine* machine, convnorm_format format) const {
  return sized_text([&](char* buffer, size_t capacity, size_t* needed) {
    return convnorm_plan_explain(handle_.get(), machine, format, buffer, capacity, needed);
  });
}

std::shared_ptr<const Plan> try_plan(const convnorm_problem& problem, const convnorm_plan_options& options,
                                     std::string* reason) {
  convnorm_plan* probe = nullptr;
  const convnorm_status status = convnorm_plan_create(&problem, &options, &probe);
  if (status == CONVNORM_UNSUPPORTED) {
    *reason = convnorm_last_error();
    return nullptr;
  }
  require(status);
  convnorm_plan_destroy(probe);
  return std::make_shared<const Plan>(problem, options);
}

convnorm_machine measure_machine(const convnorm_plan_options& options) {
  convnorm_machine machine{};
  require(convnorm_machine_measure(options.threads, options.target, &machine));
  return machine;
}

std::string library_info(convnorm_format format) {
  return sized_text(
      [&](char* buffer, size_t capacity, size_t* needed) { return convnorm_info(format, buffer, capacity, needed); });
}

std::vector<std::string> path_names(convnorm_device device) {
  return names([device](int32_t i) { return convnorm_path_name(device, i); });
}

std::vector<std::string> target_names() { return names(&convnorm_target_name); }

bool gpu_is_usable() {
  static const bool usable = nlohmann::json::parse(library_info(CONVNORM_JSON)).at("cuda_usable").get<bool>();
  return usable;
}

}  // namespace convnorm::cli
