// x copied as it is and turned into operands in place.
#pragma once

#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/sm90_onchip/x_slots.cuh"

namespace convnorm::cuda::sm90_onchip {

// Raw fours: four neighbouring inputs of eight channels, or of sixteen of 16 bits, whatever the stride. A lane copies
// its own to where their operands will lie, eight places of 16 bytes, and turns them into these: no registers hold
// what is on its way, and no lane waits for another. A unit is the fours of a warp. Slots' units are dealt to the
// warps in turn; each has several on their way.
template <class T>
class RawRows : protected XSlots<T> {
  using Base = XSlots<T>;

 protected:
  using Base::awaits, Base::await_empty, Base::barrier, Base::is_inside;
  using Base::next_tile, Base::store_parts, Base::x_, Base::first_position_, Base::any_;
  using Base::p_, Base::in_, Base::c_, Base::shared_, Base::kPairs;
  using typename Base::Element;

  using Base::Base;

  // The first x_slots chunks of the CTA's first tile, as in XLoader::first_fill: all warps take units in turn.
  __device__ __forceinline__ void first_fill_raw(int warp, int loader) {
    any_ = next_tile();
    RawTurn ask(warp - (loader < 0 ? 0 : 1)), turn = ask;
    const int step = static_cast<int>(blockDim.x) / 32 - 1, units = p_.raw.units;
    const auto settle = [&](RawTurn& its) {
      while (its.unit >= units) its.unit -= units, ++its.slot;
    };
    const auto ask_for = [&] {
      settle(ask);
      if (ask.slot < c_.x_slots && any_) copy_raw(ask.slot, ask.unit, ask.slot);
      ptx::commit_copies();
      ask.unit += step;
    };
    ask_for();
    if (awaits(loader)) await_barriers<T>(warp);
    for (settle(turn); turn.slot < c_.x_slots; settle(turn)) {
      ask_for();
      ptx::wait_copies<1>();
      if (any_) convert_raw(turn.slot, turn.unit);
      publish_raw(turn.slot);
      turn.unit += step;
    }
  }

  // From this chunk of the first tile on, whose slot is empty when its barrier's phase of this parity is over. Nobody
  // waits for an empty slot who has copies on their way: its last products may wait for these.
  __device__ __forceinline__ void refill_raw(int loader_warp, int chunk, uint32_t parity) {
    const int units = p_.raw.units;
    bool more = next_tile();
    RawTurn ask(loader_warp), turn = ask;
    int pending = 0;
    if (chunk == c_.chunks) chunk = 0, more = more && next_tile();
    const auto pass = [&](RawTurn& its) {
      its.unit -= units;
      if (++its.slot == c_.x_slots) its.slot = 0;
    };
    const auto settle = [&] {
      while (more && ask.unit >= units) {
        pass(ask);
        if (ask.slot == 0) parity ^= 1;
        if (++chunk == c_.chunks) chunk = 0, more = next_tile();
      }
    };
    settle();
    while (turn.unit >= units) pass(turn);
    while (true) {
#pragma unroll 1
      while (more && pending < kRawAhead) {
        if (pending == 0) {
          await_empty(ask.slot, parity);
        } else if (!__all_sync(~0u, ptx::mbarrier_test_wait(barrier(p_.plan.x_empty, ask.slot), parity))) {
          break;
        }
        copy_raw(ask.slot, ask.unit, chunk);
        ptx::commit_copies();
        ++pending;
        ask.unit += T::kLoaderWarps;
        settle();
      }
      if (pending == 0) return;
      await_copies(--pending);
      convert_raw(turn.slot, turn.unit);
      publish_raw(turn.slot);
      for (turn.unit += T::kLoaderWarps; turn.unit >= units;) pass(turn);
    }
  }

 private:
  static constexpr int kRawAhead = 4;
  static constexpr int kRawChannels = 32 / sizeof(Element);

  // Where a warp stands.
  struct RawTurn {
    int unit, slot = 0;

    __device__ __forceinline__ explicit RawTurn(int first) : unit(first) {}
  };

  struct RawFour {
    int group, at;  // of channels; in the row
    int place;      // the first, in shared memory

    __device__ __forceinline__ RawFour(const RawRows& of, int slot, int item) {
      const RawFill& raw = of.p_.raw;
      group = static_cast<int>(of.c_.fours.divide(item));
      at = item - group * static_cast<int>(of.c_.fours.value);
      const int input = 4 * at, phase = input & ((1 << raw.stride_log2) - 1), row = input >> raw.stride_log2;
      place = of.p_.plan.x + slot * of.p_.plan.x_slot_bytes + group * raw.group_bytes +
              (phase * of.c_.phase_rows + row) * 16;
    }
  };

  // Bytes from a four's first place to that of its input `e` in the first or second part, or eight channels.
  __device__ __forceinline__ int raw_offset(int e, int half) const {
    return (e % 2) * p_.raw.odd + (e / 2) * p_.raw.upper + half * p_.raw.second;
  }

  // The same of what is copied there: where a four's places lie side by side, as with small strides, lanes that would
  // meet in a bank exchange them.
  __device__ __forceinline__ int copy_offset(const RawFour& four, int e, int half) const {
    if constexpr (requires { T::kSwapsPlaces; }) e ^= four.at >> 1 & p_.raw.swapped;
    return raw_offset(e, half);
  }

  __device__ __forceinline__ void copy_raw(int slot, int unit, int chunk) const {
    const int item = 32 * unit + static_cast<int>(threadIdx.x % 32);
    if (item >= p_.raw.items) return;
    const RawFour four(*this, slot, item);
    const int channel = chunk * 16 * c_.chunk_k16 + kRawChannels * four.group;
    const int position = first_position_ + 4 * four.at, channels = in_.channels - channel;
    const Element* from = x_ + (int64_t{channel} * in_.channel_step + position);
    const uint32_t to = ptx::shared_address(shared_) + four.place;
    const bool whole = position >= 0 && position + 4 <= in_.length;
    if (p_.arguments.pad != CONVNORM_ZEROS && !whole) {
      pad_raw(from - position, position, channels, four);
    } else if (p_.fours_aligned) {
      constexpr int kBytes = 4 * sizeof(Element), kEach = 16 / kBytes;  // channels of a place
#pragma unroll
      for (int j = 0; j < kRawChannels; ++j) {
        ptx::copy_async_or_zeros<kBytes>(to + copy_offset(four, j / kEach % 4, j / kEach / 4) + j % kEach * kBytes,
                                         from, whole && j < channels);
        from += in_.channel_step;
      }
    } else {
      constexpr int kSome = 4 / sizeof(Element);  // of a word, which begins and ends inside
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < kRawChannels / 2; ++j) {
          const bool wanted = j + half * (kRawChannels / 2) < channels;
#pragma unroll
          for (int e = 0; e < 4; e += kSome) {
            const int byte = (4 * j + e) * static_cast<int>(sizeof(Element));
            ptx::copy_async_or_zeros<4>(to + copy_offset(four, byte / 16, half) + byte % 16, from + e,
                                        wanted && is_inside(position + e));
          }
          from += in_.channel_step;
        }
      }
    }
  }

  // The same of a four that lies in the padding or ends there. In two halves: all loads of one are on their way at
  // once.
  __device__ __forceinline__ void pad_raw(const Element* channel, int position, int channels,
                                          const RawFour& four) const {
    constexpr int kHalf = kRawChannels / 2;
    const int last = in_.length - 1;
    int from[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      from[e] = position + e;
      if (p_.arguments.pad == CONVNORM_REFLECT && from[e] < 0) from[e] = -from[e];
      if (p_.arguments.pad == CONVNORM_REFLECT && from[e] > last) from[e] = 2 * last - from[e];
      from[e] = max(0, min(from[e], last));
    }
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      uint32_t bits[kHalf][4];
#pragma unroll
      for (int j = 0; j < kHalf; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) bits[j][e] = ptx::load_bits(channel + from[e], half * kHalf + j < channels);
        channel += in_.channel_step;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        auto* const to = reinterpret_cast<uint4*>(shared_ + four.place + copy_offset(four, i, half));
        if constexpr (kPairs) {
          const auto pair = [&](int j, int e) { return __byte_perm(bits[j][e], bits[j][e + 1], 0x5410); };
          *to = make_uint4(pair(2 * i, 0), pair(2 * i, 2), pair(2 * i + 1, 0), pair(2 * i + 1, 2));
        } else {
          *to = make_uint4(bits[i][0], bits[i][1], bits[i][2], bits[i][3]);
        }
      }
    }
  }

  // A unit that has been copied becomes operands.
  __device__ __forceinline__ void convert_raw(int slot, int unit) const {
    const int item = 32 * unit + static_cast<int>(threadIdx.x % 32);
    if (item >= p_.raw.items) return;
    const RawFour its(*this, slot, item);
    unsigned char* const to = shared_ + its.place;
    uint32_t bits[8][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4 four = *reinterpret_cast<const uint4*>(to + copy_offset(its, i % 4, i / 4));
      bits[i][0] = four.x, bits[i][1] = four.y, bits[i][2] = four.z, bits[i][3] = four.w;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      uint32_t of_row[8];
      if constexpr (kPairs) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int j = 0; j < 8; ++j) of_row[j] = bits[4 * half + j / 2][j % 2 * 2 + e / 2];
          if (e % 2 == 0) {
            Base::template store_halves<0x5410>(of_row, to + raw_offset(e, half));
          } else {
            Base::template store_halves<0x7632>(of_row, to + raw_offset(e, half));
          }
        }
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) of_row[j] = bits[j][e];
        store_parts(of_row, to + raw_offset(e, 0));
      }
    }
  }

  // Who multiplies orders it before the tensor cores' reads: here that would wait for copies on their way.
  __device__ __forceinline__ void publish_raw(int slot) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot));
  }

  // Until `pending` groups are left.
  static __device__ __forceinline__ void await_copies(int pending) {
    static_assert(kRawAhead == 4);
    if (pending == 3) {
      ptx::wait_copies<3>();
    } else if (pending == 2) {
      ptx::wait_copies<2>();
    } else if (pending == 1) {
      ptx::wait_copies<1>();
    } else {
      ptx::wait_copies<0>();
    }
  }
};

}  // namespace convnorm::cuda::sm90_onchip
