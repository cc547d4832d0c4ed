// The C interface as the verbs use it: failures become BadInput with the library's own sentence, handles own
// themselves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convnorm/convnorm.h"

namespace convnorm::cli {

void require(convnorm_status status);

convnorm_problem parse_line(const std::string& line);
std::string print_line(const convnorm_problem& problem);

const char* dtype_name(convnorm_dtype dtype);
size_t dtype_size(convnorm_dtype dtype);
double flops(const convnorm_problem& problem);  // of the convolution, multiply and add counted apart

// Immutable and shareable, as the handle it owns.
class Plan {
 public:
  Plan(const convnorm_problem& problem, const convnorm_plan_options& options);

  const convnorm_problem& problem() const { return problem_; }
  const char* path() const { return convnorm_plan_path(handle_.get()); }
  const char* target() const { return convnorm_plan_target(handle_.get()); }
  size_t packed_size() const { return convnorm_plan_packed_size(handle_.get()); }
  size_t workspace_size() const { return convnorm_plan_workspace_size(handle_.get()); }

  bool on_gpu() const { return on_gpu_; }

  // On a GPU: device pointers, and `stream` is a cudaStream_t.
  void pack(const void* weight, void* packed, void* stream = nullptr) const;
  void execute(const convnorm_tensors& tensors, void* workspace, void* stream = nullptr) const;
  std::string explain(const convnorm_machine* machine, convnorm_format format) const;

 private:
  convnorm_problem problem_;
  bool on_gpu_;
  std::unique_ptr<convnorm_plan, void (*)(convnorm_plan*)> handle_;
};

// Null where the path refuses the problem; `reason` then says why. Every other failure is thrown.
std::shared_ptr<const Plan> try_plan(const convnorm_problem& problem, const convnorm_plan_options& options,
                                     std::string* reason);

convnorm_machine measure_machine(const convnorm_plan_options& options);
std::string library_info(convnorm_format format);
std::vector<std::string> path_names(convnorm_device device);
std::vector<std::string> target_names();
// Whether this build has code for a GPU of this machine.
bool gpu_is_usable();

}  // namespace convnorm::cli
