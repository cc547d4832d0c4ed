// convnorm.h, function by function. No arithmetic and no choice is made here.
#include <cstring>

#include "bindings/boundary.hpp"
#include "bindings/buffers.hpp"
#include "bindings/info.hpp"
#include "bindings/tensors.hpp"
#include "convnorm/convnorm.h"
#include "kernels/cpu/targets.hpp"
#include "plan/default_pool.hpp"
#include "plan/plan.hpp"

using convnorm::guarded;
using convnorm::required;

namespace {

// A line longer than any that can be read is cut off here: how long it is does not matter any more.
std::string_view bounded(const char* line) { return {line, strnlen(line, 8192)}; }

convnorm::Launch launch_of(const convnorm_plan& plan, const convnorm_launch* given) {
  const bool own_pool = given == nullptr || given->parallel_for == nullptr;
  const convnorm::Parallel parallel =
      own_pool ? convnorm::Parallel(convnorm::default_parallel_for, const_cast<int*>(&plan.threads))
               : convnorm::Parallel(given->parallel_for, given->parallel_context);
  return {parallel, given == nullptr ? nullptr : given->stream, plan.fingerprint};
}

void check_format(convnorm_format format) {
  if (format != CONVNORM_TEXT && format != CONVNORM_JSON) {
    convnorm::fail(CONVNORM_INVALID_ARGUMENT,
                   "format has the value {}, which is neither CONVNORM_TEXT nor CONVNORM_JSON",
                   static_cast<int>(format));
  }
}

template <class Ask>
auto ask_valid(const convnorm_problem* problem, Ask ask, decltype(ask(*problem)) otherwise) {
  auto answer = otherwise;
  guarded([&] {
    convnorm::validate(required(problem, "problem"));
    answer = ask(*problem);
  });
  return answer;
}

// nth of a list, null past its end.
template <class List, class Name>
const char* nth(const List& list, int32_t index, Name name) {
  return index >= 0 && static_cast<size_t>(index) < list.size() ? name(list[static_cast<size_t>(index)]) : nullptr;
}

}  // namespace

const char* convnorm_status_string(convnorm_status status) {
  switch (status) {
    case CONVNORM_OK:
      return "no error";
    case CONVNORM_INVALID_ARGUMENT:
      return "a value breaks a rule of the operator, or a pointer that is needed is null";
    case CONVNORM_PARSE_ERROR:
      return "the problem line cannot be read";
    case CONVNORM_UNSUPPORTED:
      return "the path or target that was asked for refuses this problem";
    case CONVNORM_OUT_OF_MEMORY:
      return "host memory could not be had";
    case CONVNORM_BUFFER_TOO_SMALL:
      return "a buffer is smaller than what was asked for";
    case CONVNORM_PACKED_MISMATCH:
      return "the packed weight was packed for another plan, or not packed at all";
    case CONVNORM_NO_DEVICE:
      return "the device is not in this build or not in this machine";
    case CONVNORM_DEVICE_ERROR:
      return "the device reported an error";
    case CONVNORM_INTERNAL_ERROR:
      return "a fault of the library; please report the problem line";
  }
  return "not a status of convnorm";
}

const char* convnorm_last_error(void) { return convnorm::last_error(); }

const char* convnorm_version(void) { return convnorm::version(); }

void convnorm_problem_init(convnorm_problem* problem) {
  guarded([&] { required(problem, "problem") = convnorm::default_problem(); });
}

convnorm_status convnorm_problem_parse(const char* line, convnorm_problem* problem) {
  return guarded([&] {
    convnorm_problem& result = required(problem, "problem");
    result = convnorm::parse_problem(bounded(&required(line, "line")));
  });
}

convnorm_status convnorm_problem_validate(const convnorm_problem* problem) {
  return guarded([&] { convnorm::validate(required(problem, "problem")); });
}

convnorm_status convnorm_problem_print(const convnorm_problem* problem, char* buffer, size_t capacity, size_t* needed) {
  return guarded([&] {
    convnorm::validate(required(problem, "problem"));
    convnorm::copy_text(convnorm::print_problem(*problem), buffer, capacity, needed);
  });
}

int convnorm_problem_equal(const convnorm_problem* a, const convnorm_problem* b) {
  int same = 0;
  guarded([&] {
    convnorm::validate(required(a, "a"));
    convnorm::validate(required(b, "b"));
    same = convnorm::equal(*a, *b);
  });
  return same;
}

uint64_t convnorm_problem_hash(const convnorm_problem* problem) {
  return ask_valid(
      problem, [](const convnorm_problem& p) { return convnorm::hash(p); }, 0);
}

int64_t convnorm_problem_output_length(const convnorm_problem* problem) {
  return ask_valid(
      problem, [](const convnorm_problem& p) { return convnorm::Sizes(p).l_out; }, -1);
}

int64_t convnorm_problem_output_channels(const convnorm_problem* problem) {
  return ask_valid(
      problem, [](const convnorm_problem& p) { return convnorm::Sizes(p).c_y; }, -1);
}

void convnorm_plan_options_init(convnorm_plan_options* options) {
  guarded([&] { required(options, "options") = convnorm_plan_options{}; });
}

convnorm_status convnorm_plan_create(const convnorm_problem* problem, const convnorm_plan_options* options,
                                     convnorm_plan** plan) {
  return guarded([&] {
    convnorm_plan*& result = required(plan, "plan");
    const convnorm_plan_options chosen = options == nullptr ? convnorm_plan_options{} : *options;
    result = convnorm::make_plan(required(problem, "problem"), chosen).release();
  });
}

void convnorm_plan_destroy(convnorm_plan* plan) { delete plan; }

void convnorm_plan_problem(const convnorm_plan* plan, convnorm_problem* problem) {
  guarded([&] { required(problem, "problem") = required(plan, "plan").problem; });
}

const char* convnorm_plan_path(const convnorm_plan* plan) {
  const char* name = "";
  guarded([&] { name = required(plan, "plan").implementation->name; });
  return name;
}

const char* convnorm_plan_target(const convnorm_plan* plan) {
  const char* name = "";
  guarded([&] { name = required(plan, "plan").target.c_str(); });
  return name;
}

convnorm_status convnorm_plan_explain(const convnorm_plan* plan, const convnorm_machine* machine,
                                      convnorm_format format, char* buffer, size_t capacity, size_t* needed) {
  return guarded([&] {
    check_format(format);
    convnorm::copy_text(convnorm::explain(required(plan, "plan"), machine, format), buffer, capacity, needed);
  });
}

const char* convnorm_path_name(convnorm_device device, int32_t index) {
  return nth(convnorm::registry(device), index, [](const convnorm::Implementation& each) { return each.name; });
}

size_t convnorm_plan_packed_size(const convnorm_plan* plan) {
  size_t bytes = 0;
  guarded([&] { bytes = convnorm::packed_buffer_bytes(required(plan, "plan")); });
  return bytes;
}

convnorm_status convnorm_pack_weight(const convnorm_plan* plan, const void* weight, void* packed, size_t packed_size,
                                     const convnorm_launch* launch) {
  return guarded([&] {
    const convnorm_plan& chosen = required(plan, "plan");
    const size_t needed = convnorm::packed_buffer_bytes(chosen);
    convnorm::check_buffer("packed", packed, packed_size, needed);
    convnorm::check_weight(chosen.problem, weight, {"packed", packed, needed});
    chosen.executable->check_memory("packed", packed);
    chosen.executable->pack(weight, convnorm::begin_packed(chosen, packed), launch_of(chosen, launch));
  });
}

convnorm_status convnorm_check_packed(const convnorm_plan* plan, const void* packed, const convnorm_launch* launch) {
  return guarded([&] {
    const convnorm_plan& chosen = required(plan, "plan");
    required(static_cast<const char*>(packed), "packed");
    chosen.executable->check_memory("packed", packed);
    chosen.executable->check_packed(convnorm::open_packed(chosen, packed), launch_of(chosen, launch));
  });
}

size_t convnorm_plan_workspace_size(const convnorm_plan* plan) {
  size_t bytes = 0;
  guarded([&] { bytes = convnorm::workspace_buffer_bytes(required(plan, "plan")); });
  return bytes;
}

convnorm_status convnorm_execute(const convnorm_plan* plan, const convnorm_tensors* tensors, void* workspace,
                                 size_t workspace_size, const convnorm_launch* launch) {
  return guarded([&] {
    const convnorm_plan& chosen = required(plan, "plan");
    const convnorm_tensors& given = required(tensors, "tensors");
    if (chosen.problem.n == 0) return;
    const size_t scratch = convnorm::workspace_buffer_bytes(chosen);
    convnorm::check_buffer("workspace", workspace, workspace_size, scratch);
    const convnorm::Region packed{
        "packed_weight", &required(static_cast<const char*>(given.packed_weight), "packed_weight"),
        convnorm::packed_buffer_bytes(chosen), ", and as packed_weight what convnorm_pack_weight has filled"};
    const convnorm::Region space{"workspace", workspace, scratch};
    convnorm::check_tensors(chosen, given, packed, space);
    if (launch == nullptr || launch->on_device == 0) convnorm::check_memory(chosen, given, packed, space);
    chosen.executable->run(given, convnorm::open_packed(chosen, given.packed_weight),
                           convnorm::usable_workspace(chosen, workspace), launch_of(chosen, launch));
  });
}

convnorm_status convnorm_machine_measure(int32_t threads, const char* target, convnorm_machine* machine) {
  return guarded([&] {
    convnorm_machine& result = required(machine, "machine");
    result = convnorm::cpu::measure(convnorm::choose_threads(threads), convnorm::choose_target(target));
  });
}

const char* convnorm_target_name(int32_t index) {
  return nth(convnorm::cpu::available_targets(), index, [](const char* name) { return name; });
}

convnorm_status convnorm_info(convnorm_format format, char* buffer, size_t capacity, size_t* needed) {
  return guarded([&] {
    check_format(format);
    convnorm::copy_text(convnorm::info(format), buffer, capacity, needed);
  });
}
