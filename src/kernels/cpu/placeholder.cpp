#include "kernels/cpu/strategies.hpp"
#include "kernels/cpu/targets.hpp"

namespace convnorm::cpu {

Answer consider_small_l(const PlanRequest&) { return Refusal{"its kernels are not in this build"}; }
Answer consider_resident(const PlanRequest&) { return Refusal{"its kernels are not in this build"}; }
Answer consider_streaming(const PlanRequest&) { return Refusal{"its kernels are not in this build"}; }
Answer consider_split(const PlanRequest&) { return Refusal{"its kernels are not in this build"}; }

const std::vector<const char*>& available_targets() {
  static const std::vector<const char*> none;
  return none;
}

const std::vector<const char*>& compiled_targets() { return available_targets(); }

convnorm_machine measure(int threads, const std::string&) {
  return {.fma_gflops = 1, .bandwidth_gbps = 1, .threads = threads};
}

}  // namespace convnorm::cpu
