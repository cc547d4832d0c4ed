// x into its slots of shared memory, by the warps that load and, at first, by all others too.
#pragma once

#include "kernels/cuda/collective/wait.cuh"
#include "kernels/cuda/collective/x_rows.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/sm90_onchip/traits.cuh"

namespace convnorm::cuda::sm90_onchip {

__device__ __forceinline__ void barriers_are_initialised() {
  ptx::named_barrier(0, static_cast<int>(blockDim.x));  // which come from different places: not __syncthreads()
}

template <class T>
class XLoader : XRows<T> {
  using Base = XRows<T>;
  using typename Base::Source;
  using Base::p_, Base::in_, Base::c_, Base::walk_, Base::x_, Base::first_position_, Base::any_;
  using Base::next_tile, Base::source_of, Base::load_channels, Base::store_halves, Base::store_parts;

 public:
  using Element = typename T::Element;

  __device__ __forceinline__ XLoader(const Parameters& p, unsigned char* shared)
      : Base(p), shared_(shared) {}

  // The first x_slots chunks of the CTA's first tile, by all warps but the one that feeds weights: `thread` counts
  // their threads. Waits for barriers_are_initialised() behind the first loads and `meanwhile`.
  template <class Meanwhile>
  __device__ __forceinline__ void first_fill(int thread, const Meanwhile& meanwhile) {
    const int threads = static_cast<int>(blockDim.x) - 32;
    any_ = next_tile();
    bool ready = false;
    // A thread takes the same one or two items of every chunk.
#pragma unroll 1
    for (int first = 0; first < c_.slot_items; first += 2 * threads) {
      const bool two = first + threads < c_.slot_items, last = first + 2 * threads >= c_.slot_items;
      Source sources[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) sources[i] = source_of(first + i * threads + thread, any_);
      const int step = two ? 2 : 4;  // chunks
#pragma unroll 1
      for (int chunk = 0; chunk < c_.x_slots; chunk += step) {
        uint32_t bits[4][8];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          const int its_chunk = chunk + (two ? u / 2 : u);
          const bool second = two && u % 2 == 1;
          const Source source = {second ? sources[1].address : sources[0].address,
                                 second ? sources[1].channels : sources[0].channels};
          load_channels(bits[u], source, its_chunk, its_chunk < c_.x_slots);
        }
        if (!ready) {
          ready = true;
          meanwhile(walk_);
          barriers_are_initialised();
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          const int its_chunk = chunk + (two ? u / 2 : u);
          const int item = first + (two && u % 2 == 1 ? threads : 0) + thread;
          if (its_chunk < c_.x_slots) {
            if (item < c_.slot_items) store_item(bits[u], its_chunk, item);
            if (last && !(two && u % 2 == 0)) publish(its_chunk, 1);
          }
        }
      }
    }
  }

  // The same where rows are positions: computing warpgroup 0, which multiplies first, loads one unit, the other
  // warpgroups and those of the loader warps that make up one take all others in turn.
  template <class Meanwhile>
  __device__ __forceinline__ void first_fill_plain(int warp, const Meanwhile& meanwhile) {
    any_ = next_tile();
    const int loader = warp - 4 * c_.warpgroups - 1;
    if (loader >= 0 && loader < T::kHaloWarps) {
      fill_halo(32 * loader + threadIdx.x % 32);
    } else {
      fill_own(loader < 0 ? warp / 4 : c_.warpgroups, meanwhile);
    }
  }

  // Everything after the first fill, by the loader warps.
  __device__ __forceinline__ void refill(int loader_warp) {
    constexpr int kBatch = 2, kThreads = 32 * T::kLoaderWarps;
    const int thread = 32 * loader_warp + threadIdx.x % 32;
    // By proxy for all that took part in the first fill.
    const uint32_t arrivals = loader_warp == 0 ? p_.x_arrivals - (T::kLoaderWarps - 1) : 1;
    if (!any_) return;
    int slot = 0;
    uint32_t parity = 0;
    int chunk = c_.x_slots;
    while (true) {
      if (chunk == c_.chunks) {
        if (!next_tile()) return;
        chunk = 0;
      }
#pragma unroll 1
      for (; chunk < c_.chunks; ++chunk) {
        wait(barrier(p_.plan.x_empty, slot), parity, "an empty slot of x");
#pragma unroll 1
        for (int item = thread; item < c_.slot_items; item += kBatch * kThreads) {
          uint32_t bits[kBatch][8];
#pragma unroll
          for (int u = 0; u < kBatch; ++u) {
            load_channels(bits[u], source_of(item + u * kThreads, true), chunk, true);
          }
#pragma unroll
          for (int u = 0; u < kBatch; ++u) {
            if (item + u * kThreads < c_.slot_items) store_item(bits[u], slot, item + u * kThreads);
          }
        }
        publish(slot, arrivals);
        if (++slot == c_.x_slots) slot = 0, parity ^= 1;
      }
    }
  }

 private:
  // A unit: all 128 positions of eight channels, or of sixteen in pairs of 16 bits, by a warpgroup.
  static constexpr bool kPairs = sizeof(Element) == 2;
  static constexpr int kUnitK8 = kPairs ? 2 : 1;

  template <class Meanwhile>
  __device__ __forceinline__ void fill_own(int group, const Meanwhile& meanwhile) {
    constexpr int kBatch = kPairs ? 4 : 5;
    const int thread = threadIdx.x % 128;
    const int row = kPairs ? thread % 64 * 2 : thread, first_k8 = kPairs ? thread / 64 : 0;
    const int slot_units_log2 = __ffs(c_.chunk_k16) - (kPairs ? 1 : 0), units = c_.x_slots << slot_units_log2;
    const int groups = c_.warpgroups + (T::kLoaderWarps > T::kHaloWarps ? 1 : 0);
    const int step = group == 0 ? units : groups - 1;
    const bool inside = any_ && walk_.first_position + row < in_.length;
    const Element* position = x_ + walk_.first_position + row;
    unsigned char* const to = shared_ + p_.plan.x + (in_.pad_left + row) * 16;
    bool ready = false;
#pragma unroll 1
    for (int first = group; first < units || !ready; first += kBatch * step) {
      uint32_t bits[kBatch][8];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int channel = 8 * ((first + u * step) * kUnitK8 + first_k8);
        if (first + u * step >= units) continue;
        const Element* from = position + int64_t{channel} * in_.length;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          bits[u][j] = ptx::load_word(from, inside && channel + j < in_.channels);
          from += in_.length;
        }
      }
      if (!ready) {
        ready = true;
        meanwhile(walk_);
        barriers_are_initialised();
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const int unit = first + u * step, slot = unit >> slot_units_log2;
        if (unit >= units) continue;
        const int k8 = (unit - (slot << slot_units_log2)) * kUnitK8 + first_k8;
        unsigned char* destination = to + slot * p_.plan.x_slot_bytes + k8 * c_.rows() * 16;
        if constexpr (kPairs) {
          store_halves<0x5410>(bits[u], destination);
          store_halves<0x7632>(bits[u], destination + 16);
        } else {
          store_parts(bits[u], destination);
        }
        publish(slot, 1);
      }
    }
  }

  // Rows beside the tile's own, by `thread` of the halo warps: an item is eight channels of one.
  __device__ __forceinline__ void fill_halo(int thread) {
    const int items = 2 * c_.last_shift * c_.chunk_k16 * c_.x_slots;
    bool ready = false;
#pragma unroll 1
    for (int first = thread & ~31; first < items || !ready; first += 32 * T::kHaloWarps) {
      const int item = first + threadIdx.x % 32;
      const int k8 = static_cast<int>(c_.halo_rows.divide(item)), beside = item - k8 * c_.last_shift;
      const int row = beside < in_.pad_left ? beside : beside + T::kColumns;
      const int position = first_position_ + row;
      const bool inside = any_ && item < items && static_cast<unsigned>(position) < static_cast<unsigned>(in_.length);
      uint32_t bits[8];
      load_channels(bits, {x_ + int64_t{8 * k8} * in_.length + position, inside ? in_.channels - 8 * k8 : 0}, 0, true);
      if (!ready) {
        ready = true;
        barriers_are_initialised();
      }
      const int slot = k8 >> __ffs(c_.chunk_k16);  // 2 * chunk_k16 to a slot
      if (item < items) {
        store_item(bits, slot, (k8 - slot * 2 * c_.chunk_k16) * c_.rows() + row);
      }
    }
    ptx::fence_proxy_async();
    __syncwarp();
    for (int slot = threadIdx.x % 32; slot < c_.x_slots; slot += 32) ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot));
  }

  __device__ __forceinline__ void store_item(const uint32_t (&bits)[8], int slot, int item) const {
    Base::store_item(bits, shared_ + p_.plan.x + slot * p_.plan.x_slot_bytes + item * 16);
  }

  __device__ __forceinline__ uint32_t barrier(int first, int slot) const {
    return ptx::shared_address(shared_) + first + 8 * slot;
  }

  // This warp's stores to a slot are done.
  __device__ __forceinline__ void publish(int slot, uint32_t arrivals) const {
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot), arrivals);
  }

  unsigned char* const shared_;
};

}  // namespace convnorm::cuda::sm90_onchip
