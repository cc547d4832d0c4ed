// Slots of x in shared memory: where they lie, what is waited for before they are written, by whom.
#pragma once

#include "kernels/cuda/collective/wait.cuh"
#include "kernels/cuda/collective/x_rows.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/sm90_onchip/traits.cuh"

namespace convnorm::cuda::sm90_onchip {

// Of the producers, those that initialise barriers: all, or all but the loader warps that have units of their own.
template <class T>
inline constexpr int kInitWarps = T::kFillsTogether ? 1 + T::kHaloWarps : T::kProducerWarps;

// By the other warps, until they are initialised.
template <class T>
__device__ __forceinline__ void await_barriers(int warp) {
  ptx::named_barrier(static_cast<int>(NamedBarrier::kInitialised) + warp / 4, 32 * (kInitWarps<T> + 4));
}

template <class T>
class XSlots : protected XRows<T> {
  using Base = XRows<T>;

 protected:
  using Base::p_, Base::in_, Base::c_;
  using Element = typename T::Element;

  static constexpr bool kPairs = sizeof(Element) == 2;

  __device__ __forceinline__ XSlots(const typename T::Parameters& p, unsigned char* shared)
      : Base(p), shared_(shared) {}

  // Whether a warp has to wait for barriers.
  static __device__ __forceinline__ bool awaits(int loader) {
    return loader < 0 || (T::kFillsTogether && loader >= T::kHaloWarps);
  }

  __device__ __forceinline__ void await_empty(int slot, uint32_t parity) const {
    wait(barrier(p_.plan.x_empty, slot), parity, "an empty slot of x");
  }

  __device__ __forceinline__ uint32_t barrier(int first, int slot) const {
    return ptx::shared_address(shared_) + first + 8 * slot;
  }

  __device__ __forceinline__ bool is_inside(int position) const {
    return static_cast<unsigned>(position) < static_cast<unsigned>(in_.length);
  }

  unsigned char* const shared_;
};

}  // namespace convnorm::cuda::sm90_onchip
