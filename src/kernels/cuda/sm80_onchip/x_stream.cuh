// x into its two slots of shared memory, a chunk ahead of the products, by all threads.
#pragma once

#include "kernels/cuda/collective/x_rows.cuh"
#include "kernels/cuda/sm80_onchip/traits.cuh"

namespace convnorm::cuda::sm80_onchip {

template <class T>
class XStream : XRows<T> {
  using Base = XRows<T>;
  using typename Base::Source;
  using Base::p_, Base::c_, Base::any_;

 public:
  __device__ __forceinline__ XStream(const Parameters& p, unsigned char* shared) : Base(p), shared_(shared) {}

  // The first chunk of the CTA's first tile.
  __device__ __forceinline__ void begin() {
    constexpr int kBatch = T::kChunkK16 == 2 ? 5 : 3;  // of items: all that 128 columns and a few taps have
    next_tile();
#pragma unroll 1
    for (int first = 0; first * kThreads < c_.slot_items; first += kBatch) {
      Source sources[kBatch];
      uint32_t bits[kBatch][8];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) sources[u] = source(first + u);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) Base::load_channels(bits[u], sources[u], chunk_, true);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) store_item(first + u, bits[u]);
    }
  }

  // From now on the next chunk is loaded, of the next tile behind the last one, into the other slot.
  __device__ __forceinline__ void advance() {
    if (++chunk_ == c_.chunks) {
      chunk_ = 0;
      if (any_) next_tile();
    }
    slot_bytes_ = p_.plan.x_slot_bytes - slot_bytes_;
  }

  // A round's loads are aimed, on their way, and at last in the slot; nothing happens for rounds that a chunk does not
  // have. The second step has no branches: loads behind one wait for those before it.
  __device__ __forceinline__ void aim(int round) {
#pragma unroll
    for (int u = 0; u < T::kItems; ++u) sources_[u] = source(round * T::kItems + u);
  }
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int u = 0; u < T::kItems; ++u) Base::load_channels(bits_[u], sources_[u], chunk_, true);
  }
  __device__ __forceinline__ void store(int round) const {
#pragma unroll
    for (int u = 0; u < T::kItems; ++u) store_item(round * T::kItems + u, bits_[u]);
  }

 private:
  __device__ __forceinline__ void next_tile() {
    any_ = Base::next_tile();
    if (p_.arguments.conv_groups > 1) {
      const auto group = static_cast<int>(c_.conv_group_tiles.divide(this->walk_.row_tile));
      this->x_ += int64_t{group} * this->in_.channels * this->in_.channel_step;
    }
  }

  __device__ __forceinline__ Source source(int pass) const {
    return Base::source_of(pass * kThreads + static_cast<int>(threadIdx.x), any_);
  }
  __device__ __forceinline__ void store_item(int pass, const uint32_t (&bits)[8]) const {
    const int item = pass * kThreads + static_cast<int>(threadIdx.x);
    if (item < c_.slot_items) Base::store_item(bits, shared_ + p_.plan.x + slot_bytes_ + item * 16);
  }

  unsigned char* const shared_;
  int chunk_ = 0, slot_bytes_ = 0;
  Source sources_[T::kItems];
  uint32_t bits_[T::kItems][8];
};

}  // namespace convnorm::cuda::sm80_onchip
