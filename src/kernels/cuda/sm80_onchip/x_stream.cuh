// x into its two slots of shared memory, a chunk ahead of the products, by all threads.
#pragma once

#include "kernels/cuda/collective/x_rows.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/sm80_onchip/traits.cuh"

namespace convnorm::cuda::sm80_onchip {

template <class T>
class XStream : XRows<T> {
  using Base = XRows<T>;
  using Base::p_, Base::c_, Base::any_;
  using typename Base::Source;

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
      for (int u = 0; u < kBatch; ++u) sources[u] = general_source_of(first + u);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) load_item(bits[u], sources[u]);
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
    if (c_.plain_rows) begin_plain();
  }

  // A round's loads are on their way, and at last in the slot; rounds follow each other. Several groups of loads, each
  // behind a branch, wait for those before them: hence one for a round.
  __device__ __forceinline__ void load(int round) {
    Source sources[T::kItems];
    if (c_.plain_rows) {
#pragma unroll
      for (int u = 0; u < T::kItems; ++u) sources[u] = next_plain();
    } else {
#pragma unroll
      for (int u = 0; u < T::kItems; ++u) {
        sources[u] = Base::in_chunk(general_source_of(round * T::kItems + u), chunk_);
      }
    }
#pragma unroll
    for (int u = 0; u < T::kItems; ++u) load_item(bits_[u], sources[u]);
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

  __device__ __forceinline__ int first_channel() const { return Base::first_channel_of(chunk_); }

  // The epilogue by warps writes channels first, so x of such a tile is so as well.
  __device__ __forceinline__ bool whole_items() const { return !T::kByWarps && this->in_.whole_items; }

  // As bits of elements, or in words as they lie in memory if items are whole.
  __device__ __forceinline__ void load_item(uint32_t (&bits)[8], const Source& source) const {
    const auto* address = source.address;
    const int channels = source.channels;
    if (whole_items()) {
      ptx::load_128(address, channels > 0, bits[0], bits[1], bits[2], bits[3]);
      if constexpr (sizeof(*address) == 4) ptx::load_128(address + 4, channels > 0, bits[4], bits[5], bits[6], bits[7]);
      return;
    }
    const bool whole = first_channel() + 16 * c_.chunk_k16 <= this->in_.channels;  // all eight channels or none
    const int64_t step = this->in_.channel_step;
    if (whole) {
#pragma unroll
      for (int j = 0; j < 8; ++j) bits[j] = ptx::load_bits(address + j * step, channels > 0);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) bits[j] = ptx::load_bits(address + j * step, channels > j);
    }
  }

  __device__ __forceinline__ Source general_source_of(int pass) const {
    return Base::source_of(pass * kThreads + static_cast<int>(threadIdx.x), any_);
  }

  // Rows that follow each other in memory need no division for each item: this thread's next one lies a fixed number of
  // rows on, or that many less a whole turn. What is computed for an item is what a step has beside its products.
  __device__ __forceinline__ void begin_plain() {
    const auto item = static_cast<int>(threadIdx.x), k8 = static_cast<int>(c_.slot_rows.divide(item));
    const int channel = first_channel() + 8 * k8;
    position_ = this->first_position_ + item - k8 * c_.rows();
    address_ = this->x_ + (int64_t{channel} * this->in_.length + position_);
    channels_ = any_ ? this->in_.channels - channel : -kNone;
  }
  __device__ __forceinline__ Source next_plain() {
    const int rows = c_.rows(), length = this->in_.length;
    const bool in_chunk = channels_ > this->in_.channels - first_channel() - 16 * c_.chunk_k16;
    const bool wanted = in_chunk && static_cast<unsigned>(position_) < static_cast<unsigned>(length);
    const Source source = {address_, wanted ? channels_ : 0};
    const auto turns = static_cast<int>(c_.slot_rows.divide(kThreads));
    int step = kThreads - turns * rows, k8s = turns;
    if (position_ + step >= this->first_position_ + rows) step -= rows, ++k8s;
    position_ += step;
    address_ += int64_t{8 * k8s} * length + step;
    channels_ -= 8 * k8s;
    return source;
  }

  __device__ __forceinline__ void store_item(int pass, const uint32_t (&bits)[8]) const {
    const int item = pass * kThreads + static_cast<int>(threadIdx.x);
    if (item >= c_.slot_items) return;
    unsigned char* destination = shared_ + p_.plan.x + slot_bytes_ + item * 16;
    if (sizeof(typename Base::Element) == 2 && whole_items()) {
      *reinterpret_cast<uint4*>(destination) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
    } else {
      Base::store_item(bits, destination);
    }
  }

  unsigned char* const shared_;
  int chunk_ = 0, slot_bytes_ = 0;
  uint32_t bits_[T::kItems][8];
  // Of plain rows, this thread's next item: where it lies, and the channels from there to the last one.
  static constexpr int kNone = 1 << 24;
  const typename Base::Element* address_;
  int position_, channels_;
};

}  // namespace convnorm::cuda::sm80_onchip
