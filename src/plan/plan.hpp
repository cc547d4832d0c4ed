// WHICH implementation computes a problem, with which numbers, and why not the others.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "convnorm/convnorm.h"
#include "descriptor/problem.hpp"
#include "kernels/cuda/device.hpp"

namespace convnorm {

// Calls body(i) for every i in [0, count), in any order, possibly at once; returns when all are done.
class Parallel {
 public:
  Parallel(convnorm_parallel_for function, void* context) : function_(function), context_(context) {}

  template <class Body>
  void operator()(int count, Body&& body) const {
    if (count == 1) return body(0);
    function_(
        context_, count, [](void* argument, int32_t i) { (*static_cast<std::remove_reference_t<Body>*>(argument))(i); },
        &body);
  }

 private:
  convnorm_parallel_for function_;
  void* context_;
};

// How one call runs: on a CPU by a pool, on a GPU in a stream.
struct Launch {
  Parallel parallel;
  void* stream;          // cudaStream_t
  uint64_t fingerprint;  // of the plan: tags packed weights that the host cannot look at
};

// What an implementation promises about memory traffic and storage; explain() prints it and tests hold it.
struct Accounting {
  double flops = 0;        // performed, recomputation included
  double min_bytes = 0;    // x, w, parameters and residual read once, y written once
  double moved_bytes = 0;  // expected traffic beyond the caches
  double z_bytes = 0;      // convolution results held outside the caches' working set; 0 on the fused paths
  double workspace_bytes = 0;
  bool tensor_cores = false;
  int split_parts = 0;  // bfloat16 parts that fp32 operands are multiplied in; 0: as they are
};

// An implementation configured for one problem. Immutable; run() may be called from many threads.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual size_t packed_bytes() const = 0;
  virtual void pack(const void* weight, void* packed, const Launch& launch) const = 0;
  virtual size_t workspace_bytes() const = 0;
  virtual void run(const convnorm_tensors& tensors, const void* packed, void* workspace,
                   const Launch& launch) const = 0;
  // Throws Failure(PACKED_MISMATCH) if `packed` lacks the launch's fingerprint. For weights that the host cannot look
  // at without waiting; the others are checked before.
  virtual void check_packed(const void*, const Launch&) const {}
  // Throws Failure(INVALID_ARGUMENT) if run() cannot reach the memory at `address`, which the message calls `name`.
  virtual void check_memory(const char*, const void*) const {}
  // What the layout of packed weights depends on beside problem, path and target.
  virtual std::string packing() const { return ""; }
  virtual std::vector<std::pair<std::string, std::string>> config() const = 0;  // name, value; in reading order
  virtual Accounting accounting() const = 0;
  // How long a call is expected to take, from measurements: plans take the least of the paths that accept. 0: the first
  // that accepts is taken, in the order of the registry.
  virtual double expected_us() const { return 0; }
  // Has ready what calls will need of the device. For the chosen one alone.
  virtual void prepare() const {}
};

struct PlanRequest {
  const Problem& problem;
  Sizes sizes;
  int threads;
  std::string target;                       // name of the instruction set, or "scalar"; of a GPU, its architecture
  const cuda::DeviceLimits* gpu = nullptr;  // null on CPUs
  bool constant_weights = false;            // promised: as convnorm_plan_options says
};

struct Refusal {
  std::string reason;
};
using Answer = std::variant<std::unique_ptr<Executable>, Refusal>;

struct Implementation {
  const char* name;
  const char* summary;      // one line: how it works
  const char* determinism;  // what is guaranteed about repeatability
  bool vectorised;          // false: the same scalar code on every machine, whatever the target
  Answer (*consider)(const PlanRequest&);
};

// Bytes that any implementation moves: inputs read once, y written once.
double compulsory_bytes(const Problem& problem, const Sizes& sizes);

// In the order in which a plan asks them; the one that never refuses is last.
std::span<const Implementation> registry(convnorm_device device);

}  // namespace convnorm

// The C ABI's opaque plan.
struct convnorm_plan {
  convnorm::Problem problem;
  std::optional<convnorm::cuda::DeviceLimits> gpu;  // that it was made for; none on CPUs
  int threads;
  std::string target;
  const convnorm::Implementation* implementation;
  std::unique_ptr<convnorm::Executable> executable;
  uint64_t fingerprint;  // of problem, path, target and packing: tags packed weights
  bool path_was_named;   // by the caller: no other was asked
  std::vector<std::pair<std::string, double>> alternatives;
  std::vector<std::pair<std::string, std::string>> refusals;
};

namespace convnorm {

// As many as wanted, or as the default pool has for 0. Throws Failure if that is no sensible number.
int choose_threads(int32_t wanted);

// The name itself, or the best of this machine for null. Throws Failure if this build or machine does not have it.
std::string choose_target(const char* wanted);

struct Choice {
  const Implementation* implementation;
  std::unique_ptr<Executable> executable;
  std::vector<std::pair<std::string, double>> alternatives;   // paths that accept too, expected us; the quickest first
  std::vector<std::pair<std::string, std::string>> refusals;  // paths that were asked and do not accept, reason
};

// The path called `path`, or for null the one that is expected to be the fastest of those that accept. Needs no device.
// Throws Failure.
Choice choose(std::span<const Implementation> implementations, const PlanRequest& request, const char* path);

// Throws Failure.
std::unique_ptr<convnorm_plan> make_plan(const Problem& problem, const convnorm_plan_options& options);

std::string explain(const convnorm_plan& plan, const convnorm_machine* machine, convnorm_format format);

}  // namespace convnorm
