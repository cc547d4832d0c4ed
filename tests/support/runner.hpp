// Runs a problem on a path and an instruction set through the C interface, and holds what every run must hold: the path
// asked for is the path taken, nothing outside y and the workspace is written, inputs stay as they are, and no value
// outside the tensors reaches the result.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convnorm/convnorm.h"
#include "support/inputs.hpp"
#include "support/plain.hpp"

namespace convnorm::test {

// CONVNORM_TEST_DEVICE=cuda in the environment runs the suite on a GPU: memory, paths and targets are then its own.
convnorm_device test_device();

struct Request {
  std::string path = {};    // "": the planned one
  std::string target = {};  // "": the best of the machine
  int threads = 1;
  convnorm_parallel_for pool = nullptr;  // null: the library's own
  int misalignment = 0;                  // of every tensor, in elements
};

struct Outcome {
  bool accepted = false;
  std::string refusal;
  std::string fault;  // "" if all that every run must hold was held
  std::string path, target;
  std::vector<std::byte> bytes;  // y as written
  std::vector<double> y;         // (N, C_y, L_out)
  size_t workspace_bytes = 0;
  double z_bytes = 0;  // as explain says
  Arithmetic arithmetic = Arithmetic::single_precision;
};

Outcome run(const Inputs& inputs, const Request& request = {});

// A plan with its packed weight and its tensors in guarded memory, for tests that execute it in a way of their own:
// many times, from many threads, with large buffers.
class Prepared {
 public:
  Prepared(const Inputs& inputs, const Request& request);
  ~Prepared();

  const std::string& refusal() const;  // of the path asked for; "" if it accepts
  const std::string& fault() const;    // "" if everything is ready; nothing else may be asked otherwise
  const convnorm_plan* plan() const;
  size_t workspace_bytes() const;
  // May be called from several threads at once. "" or what went wrong. `y` and `workspace` are host memory; on a GPU
  // the call gets device memory in their place, with bands around it, and y comes back.
  std::string execute(void* y, void* workspace) const;
  // "" if the inputs, the packed weight and the memory around them are as they were.
  std::string inputs_intact() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// As explain says, and the reference's.
Arithmetic arithmetic_of(const convnorm_plan* plan);

// Every instruction set of this machine, and the scalar one. On a GPU one entry, "": its architecture is the target.
std::vector<std::string> targets();
// Every path of the registry, in its order.
std::vector<std::string> paths();

// Calls use(outcome) for the planned path and each path that accepts, on every target. Returns the first fault of a run
// or of `use` ("" for none), with path and target before it.
std::string on_every_path(const Inputs& inputs, const std::function<std::string(const Outcome&)>& use,
                          int misalignment = 0);

// on_every_path against the truth: what most tests want. `taken` (may be null) receives the paths.
std::string check_every_path(const Inputs& inputs, std::vector<std::string>* taken = nullptr, int misalignment = 0);

// The same bits from any path, number of threads and pool, on each target; workspace and storage within their promises.
std::string check_same_bits(const Inputs& inputs);

}  // namespace convnorm::test
