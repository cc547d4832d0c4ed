#include "kernels/cuda/backend.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/any_arch/any_arch.hpp"
#ifdef CONVNORM_DEPTHWISE
#include "kernels/cuda/depthwise/depthwise.hpp"
#endif
#ifdef CONVNORM_MOMENTS
#include "kernels/cuda/moments/moments.hpp"
#endif
#ifdef CONVNORM_RECOMPUTE
#include "kernels/cuda/recompute/recompute.hpp"
#endif
#ifdef CONVNORM_SM80_ONCHIP
#include "kernels/cuda/sm80_onchip/sm80_onchip.hpp"
#endif
#ifdef CONVNORM_SM90_IN_TURN
#include "kernels/cuda/sm90_in_turn/in_turn.hpp"
#endif
#ifdef CONVNORM_SM90_ONCHIP
#include "kernels/cuda/sm90_onchip/onchip.hpp"
#endif
#ifdef CONVNORM_SM90_STREAM
#include "kernels/cuda/sm90_stream/sm90_stream.hpp"
#endif
#ifdef CONVNORM_SM90_TWO_PASS
#include "kernels/cuda/sm90_two_pass/two_pass.hpp"
#endif
#include "plan/plan.hpp"

namespace convnorm::cuda {

namespace {

constexpr Implementation kImplementations[] = {
#ifdef CONVNORM_DEPTHWISE
    {"depthwise",
     "every output channel reads one input channel, kept in shared memory from the statistics to the store",
     "bitwise repeatable on GPUs with the same number of SMs: sums are merged in a fixed order, without atomics", true,
     consider_depthwise},
#endif
#ifdef CONVNORM_MOMENTS
    {"moments", "statistics follow from second moments of the inputs, then one pass computes and stores",
     "bitwise repeatable on GPUs with the same number of SMs: sums are merged in a fixed order, without atomics", true,
     consider_moments},
#endif
#ifdef CONVNORM_RECOMPUTE
    {"recompute", "few inputs under the kernel: tensor cores form the products once for the statistics and once for y",
     "bitwise repeatable on GPUs with the same number of SMs: sums are merged in a fixed order, without atomics", true,
     consider_recompute},
#endif
#ifdef CONVNORM_SM90_STREAM
    {"sm90_stream", "few positions and wide channels: every SM has its part of the weight on its way at once",
     "bitwise repeatable: sums are merged in a fixed order, without atomics", true, consider_sm90_stream},
#endif
#ifdef CONVNORM_SM90_ONCHIP
    {"sm90_onchip", "tensor cores; the convolution's result stays in registers until it is normalised and stored",
     "bitwise repeatable: sums are merged in a fixed order, without atomics", true, consider_sm90_onchip},
#endif
#ifdef CONVNORM_SM90_IN_TURN
    {"sm90_in_turn", "tensor cores; samples in turn, of which the chip holds one: others run under its norm and store",
     "bitwise repeatable: sums are merged in a fixed order, without atomics", true, consider_sm90_in_turn},
#endif
#ifdef CONVNORM_SM90_TWO_PASS
    {"sm90_two_pass", "tensor cores; one pass for the statistics, a second one for the result: groups of any length",
     "bitwise repeatable: sums are merged in a fixed order, without atomics", true, consider_sm90_two_pass},
#endif
#ifdef CONVNORM_SM80_ONCHIP
    {"sm80_onchip",
     "tensor cores of any GPU that has them; the convolution's result stays in registers until it is stored",
     "bitwise repeatable: sums are merged in a fixed order, without atomics", true, consider_sm80_onchip},
#endif
    {"any_arch", "three plain kernels for every GPU and every option: convolve, merge the statistics, normalise",
     "bitwise repeatable on GPUs with the same number of SMs: sums are merged in a fixed order, without atomics", true,
     consider_any_arch},
};

}  // namespace

std::span<const Implementation> implementations() { return kImplementations; }

Presence presence() {
  const std::string built = architectures_text(built_architectures());
  const std::string toolkit = toolkit_version(), driver = driver_version();
  try {
    const DeviceLimits device = current_device();
    return {true,  true,    fmt::format("{} ({}, {} SMs)", device.name, device.architecture(), device.sm_count),
            built, toolkit, driver};
  } catch (const Failure& failure) {
    return {true, false, failure.what(), built, toolkit, driver};
  }
}

}  // namespace convnorm::cuda
