#include "kernels/cpu/strategies.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/ref/reference.hpp"
#include "plan/plan.hpp"

namespace convnorm {

namespace {

constexpr const char* kFixedOrder =
    "bitwise repeatable on one target, for any number of threads: sums are merged in a fixed order, without atomics";

constexpr Implementation kCpu[] = {
    {"small_l", "few positions and wide channels: output channels are the vector dimension", kFixedOrder, true,
     cpu::consider_small_l},
    {"moments", "statistics follow from second moments of the inputs, then one pass computes and stores", kFixedOrder,
     true, cpu::consider_moments},
    {"resident", "whole groups stay in the second-level cache from the convolution to the store", kFixedOrder, true,
     cpu::consider_resident},
    {"streaming", "the convolution is computed twice, first for the statistics, and nothing is stored in between",
     kFixedOrder, true, cpu::consider_streaming},
    {"split", "groups larger than the cache: the convolution is stored and normalised in a second pass", kFixedOrder,
     true, cpu::consider_split},
    {"recompute", "the convolution is computed twice where a kept one would need a workspace larger than y plus 64 MiB",
     kFixedOrder, true, cpu::consider_recompute},
    {"reference", "the definition, one value at a time in double precision",
     "bitwise repeatable for any number of threads: each group is summed by one thread in index order", false,
     ref::consider_reference},
};

}  // namespace

std::span<const Implementation> registry(convnorm_device device) {
  return device == CONVNORM_CPU ? kCpu : cuda::implementations();
}

}  // namespace convnorm
