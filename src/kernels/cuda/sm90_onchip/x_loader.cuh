// x into its slots of shared memory, by the warps that load and, at first, by all others too.
#pragma once

#include "kernels/cuda/collective/wait.cuh"
#include "kernels/cuda/collective/x_rows.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/sm90_onchip/traits.cuh"

namespace convnorm::cuda::sm90_onchip {

// By the warp that has initialised barriers, which waits for nobody.
template <class T>
__device__ __forceinline__ void announce_barriers(int warpgroups) {
  const auto arrive = [](int crew, int warps) {
    ptx::named_barrier_arrive(static_cast<int>(NamedBarrier::kInitialised) + crew, 32 * (1 + warps));
  };
#pragma unroll 1
  for (int i = 0; i < warpgroups; ++i) arrive(i, 4);
  arrive(kLoaderCrews, T::kHaloWarps);
  if (T::kLoaderWarps > T::kHaloWarps) arrive(kLoaderCrews + 1, T::kLoaderWarps - T::kHaloWarps);
}

// By all other warps, `loader` of which are those that load x, or negative.
template <class T>
__device__ __forceinline__ void await_barriers(int warp, int loader) {
  const bool halo = loader < T::kHaloWarps;
  const int crew = loader < 0 ? warp / 4 : kLoaderCrews + (halo ? 0 : 1);
  const int warps = loader < 0 ? 4 : halo ? T::kHaloWarps : T::kLoaderWarps - T::kHaloWarps;
  ptx::named_barrier(static_cast<int>(NamedBarrier::kInitialised) + crew, 32 * (1 + warps));
}

template <class T>
class XLoader : XRows<T> {
  using Base = XRows<T>;
  using Base::next_tile, Base::source_of, Base::load_channels, Base::store_parts;
  using Base::p_, Base::in_, Base::c_, Base::walk_, Base::x_, Base::first_position_, Base::any_;
  using typename Base::Source;

 public:
  using Element = typename T::Element;

  __device__ __forceinline__ XLoader(const typename T::Parameters& p, unsigned char* shared)
      : Base(p), shared_(shared) {}

  // The first x_slots chunks of the CTA's first tile, by all warps but the one that feeds weights; `loader` of them are
  // those that load x, or negative. Waits for await_barriers() behind the first loads.
  __device__ __forceinline__ void first_fill(int warp, int loader) {
    const int threads = static_cast<int>(blockDim.x) - 32,
              thread = static_cast<int>(threadIdx.x) - (loader < 0 ? 0 : 32);
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
          await_barriers<T>(warp, loader);
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
  // warpgroups and those of the loader warps that make up one take all others in turn. By asynchronous copies: little
  // code, which a launch has to fetch first, and no registers for what is on its way. What can be done meanwhile is
  // done between ask_for_own() and fill_own().
  static __device__ __forceinline__ bool has_own(int loader) { return loader < 0 || loader >= T::kHaloWarps; }

  __device__ __forceinline__ void ask_for_own(int warp, int loader) {
    any_ = next_tile();
    const Units own(*this, warp, loader);
    const Rows rows(*this);
    int unit = own.first;
#pragma unroll 1
    for (int i = 0; i < kAhead; ++i, unit += own.step) ask_for(own, rows, unit);
  }

  __device__ __forceinline__ void fill_own(int warp, int loader) {
    const Units own(*this, warp, loader);
    const Rows rows(*this);
    await_barriers<T>(warp, loader);
#pragma unroll 1
    for (int unit = own.first; unit < own.fill.units; unit += own.step) {
      if (any_) {
        ptx::wait_copies<kAhead - 1>();
        ask_for(own, rows, unit + kAhead * own.step);
        convert_unit(own.first, own.region(unit), own.fill.second);
      }
      publish(own.slot(unit), 1);
    }
  }

  // Rows beside the tile's own, by the halo warps: an item is eight channels of one.
  __device__ __forceinline__ void fill_halo(int warp, int loader) {
    any_ = next_tile();
    const int items = 2 * c_.last_shift * c_.chunk_k16 * c_.x_slots;
    bool ready = false;
#pragma unroll 1
    for (int first = 32 * loader; first < items || !ready; first += 32 * T::kHaloWarps) {
      const int item = first + threadIdx.x % 32;
      const int k8 = static_cast<int>(c_.halo_rows.divide(item)), beside = item - k8 * c_.last_shift;
      const int row = beside < in_.pad_left ? beside : beside + T::kColumns;
      const int position = first_position_ + row;
      const bool inside = any_ && item < items && static_cast<unsigned>(position) < static_cast<unsigned>(in_.length);
      uint32_t bits[8];
      load_channels(bits, {x_ + int64_t{8 * k8} * in_.length + position, inside ? in_.channels - 8 * k8 : 0}, 0, true);
      if (!ready) {
        ready = true;
        await_barriers<T>(warp, loader);
      }
      const int slot = k8 >> __ffs(c_.chunk_k16);  // 2 * chunk_k16 to a slot
      if (item < items) {
        store_item(bits, slot, (k8 - slot * 2 * c_.chunk_k16) * c_.rows() + row);
      }
    }
    ptx::fence_proxy_async();
    __syncwarp();
    for (int slot = threadIdx.x % 32; slot < c_.x_slots; slot += 32)
      ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot));
  }

  // By computing warps after the first fill, for a loader that refills. An empty slot says as much, by way of the warps that
  // emptied it; this says it to racecheck too.
  __device__ __forceinline__ void hand_over() const {
    ptx::named_barrier_arrive(static_cast<int>(NamedBarrier::kFilled), 128 * c_.warpgroups + 32 * T::kLoaderWarps);
  }

  // Everything after the first fill, by the loader warps, with a loader of its own: what one would keep from the first
  // fill would be spilled.
  __device__ __forceinline__ void refill(int loader_warp) {
    constexpr int kThreads = 32 * T::kLoaderWarps;
    const int thread = 32 * loader_warp + threadIdx.x % 32;
    // By proxy for all that took part in the first fill.
    const uint32_t arrivals = loader_warp == 0 ? p_.x_arrivals - (T::kLoaderWarps - 1) : 1;
    if constexpr (T::kFours) {
      ptx::named_barrier(static_cast<int>(NamedBarrier::kFilled), 128 * c_.warpgroups + 32 * T::kLoaderWarps);
    }
    if (!next_tile()) return;
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
        if (T::kFours && p_.fours_aligned) {
          fill_by_fours<true>(thread, kThreads, slot, parity, chunk);
        } else if (T::kFours && c_.by_fours) {
          fill_by_fours<false>(thread, kThreads, slot, parity, chunk);
        } else {
          await_empty(slot, parity);
          fill_by_items(thread, kThreads, slot, chunk);
        }
        publish(slot, arrivals);
        if (++slot == c_.x_slots) slot = 0, parity ^= 1;
      }
    }
  }

 private:
  // A unit: all 128 positions of eight channels, or of sixteen of 16 bits. It is copied as it is to where its operands
  // will lie: in either form it is two regions of 2 KiB, which are those of two parts or of two times eight channels.
  static constexpr bool kPairs = sizeof(Element) == 2;
  static constexpr int kUnitChannels = kPairs ? 16 : 8;
  static constexpr int kRowBytes = T::kColumns * sizeof(Element);

  // Units that a warpgroup has on their way. All at once would be late: the first of them would come among the last of
  // others.
  static constexpr int kAhead = 2;

  // Those of a warpgroup: first, first + step, ...
  struct Units {
    const PlainFill& fill;
    const uint32_t shared;
    const int first, step;

    __device__ __forceinline__ Units(const XLoader& of, int warp, int loader)
        : fill(of.p_.fill),
          shared(ptx::shared_address(of.shared_) + fill.first),
          first(loader < 0 ? warp / 4 : of.c_.warpgroups),
          step(first == 0 ? fill.units : of.c_.warpgroups - (T::kLoaderWarps > T::kHaloWarps ? 0 : 1)) {}

    __device__ __forceinline__ int slot(int unit) const { return unit >> fill.slot_units_log2; }
    __device__ __forceinline__ uint32_t region(int unit) const {
      return shared + slot(unit) * fill.slot_bytes + (unit - (slot(unit) << fill.slot_units_log2)) * fill.unit_bytes;
    }
  };

  // A thread's share of copying rows, channels of x: a piece of 16 bytes of two rows of a unit.
  struct Rows {
    static constexpr int kPieces = kRowBytes / 16, kElements = 16 / sizeof(Element);

    const XLoader& of;
    const int thread, piece;
    const int left;        // positions of a row from the tile's first on
    const Element* first;  // of the thread's row of unit 0

    __device__ __forceinline__ explicit Rows(const XLoader& loader)
        : of(loader),
          thread(threadIdx.x % 128),
          piece(thread % kPieces),
          left(loader.in_.length - loader.walk_.first_position),
          first(loader.x_ + int64_t{thread / kPieces} * loader.in_.length + loader.walk_.first_position) {}

    // In `kCopies` copies, whose words neighbouring lanes take in turn. One copy needs rows that start on 16 bytes.
    template <int kCopies>
    __device__ __forceinline__ void copy(int unit, uint32_t to, int second) const {
      constexpr int kSome = kElements / kCopies;  // elements of a copy
      int channel = unit * kUnitChannels + thread / kPieces;
      const Element* row = first + int64_t{unit} * kUnitChannels * of.in_.length;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int end = channel < of.in_.channels ? left : 0;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          const int some = i * kPieces + piece;
          ptx::copy_async_some<16 / kCopies>(to + (thread - piece) * 16 + some * (16 / kCopies), row + some * kSome,
                                             min(max(end - some * kSome, 0), kSome) * sizeof(Element));
        }
        channel += kUnitChannels / 2;
        row += int64_t{kUnitChannels / 2} * of.in_.length;
        to += second;
      }
    }
  };

  // An empty group of copies past the last unit, so that as many are on their way as waits count on.
  __device__ __forceinline__ void ask_for(const Units& own, const Rows& rows, int unit) const {
    if (unit < own.fill.units && any_) {
      if (p_.vectors_of_x) {
        rows.template copy<1>(unit, own.region(unit), own.fill.second);
      } else {
        rows.template copy<4>(unit, own.region(unit), own.fill.second);
      }
    }
    ptx::commit_copies();
  }

  // A unit that has been copied to `at` and `second` bytes further on becomes operands there, by a warpgroup.
  __device__ __forceinline__ void convert_unit(int group, uint32_t at, int second) const {
    const int thread = threadIdx.x % 128, barrier = static_cast<int>(NamedBarrier::kWarpgroup) + group;
    unsigned char* const first = shared_ + (at - ptx::shared_address(shared_));
    uint32_t bits[8];
    ptx::named_barrier(barrier, 128);  // all have waited for their copies
    if constexpr (kPairs) {
      unsigned char* const mine = first + thread / 64 * second;
      const int pair = thread % 64;
#pragma unroll
      for (int j = 0; j < 8; ++j) bits[j] = *reinterpret_cast<const uint32_t*>(mine + j * kRowBytes + 4 * pair);
      ptx::named_barrier(barrier, 128);  // all have read
      Base::template store_halves<0x5410>(bits, mine + 32 * pair);
      Base::template store_halves<0x7632>(bits, mine + 32 * pair + 16);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        bits[j] = *reinterpret_cast<const uint32_t*>(first + j / 4 * second + j % 4 * kRowBytes + 4 * thread);
      }
      ptx::named_barrier(barrier, 128);  // all have read
      store_parts(bits, first + 16 * thread);
    }
  }

  // Four neighbouring inputs of eight channels, where samples are not interleaved and the stride is a power of two: one
  // address and one check for what are rows of several phases or positions. `kAligned`: a channel's four are a vector.
  template <bool kAligned>
  struct Four {
    static constexpr int kWords = kAligned ? sizeof(Element) : 4;  // of a channel's four

    int k8, at;  // the four's number in its row
    uint32_t bits[8][kWords];
  };

  // The first position of four `at` of a row of the tile.
  __device__ __forceinline__ int position_of_four(int at) const { return first_position_ - c_.fours_shift + at * 4; }
  __device__ __forceinline__ bool is_inside(int position) const {
    return static_cast<unsigned>(position) < static_cast<unsigned>(in_.length);
  }

  template <bool kAligned>
  __device__ __forceinline__ void load_four(Four<kAligned>& four, int item, int chunk) const {
    four.k8 = static_cast<int>(c_.fours.divide(item)), four.at = item - four.k8 * static_cast<int>(c_.fours.value);
    const int position = position_of_four(four.at), channel = chunk * 16 * c_.chunk_k16 + 8 * four.k8;
    const Element* from = x_ + int64_t{channel} * in_.channel_step + position;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const bool wanted = four.k8 < 2 * c_.chunk_k16 && channel + j < in_.channels;
      auto& bits = four.bits[j];
      if constexpr (!kAligned) {
#pragma unroll
        for (int e = 0; e < 4; ++e) bits[e] = ptx::load_bits(from + e, wanted && is_inside(position + e));
      } else if constexpr (Four<kAligned>::kWords == 4) {
        ptx::load_128(from, wanted && is_inside(position), bits[0], bits[1], bits[2], bits[3]);
      } else {
        ptx::load_64(from, wanted && is_inside(position), bits[0], bits[1]);
      }
      from += in_.channel_step;
    }
  }

  template <bool kAligned>
  __device__ __forceinline__ void store_four(const Four<kAligned>& four, int slot, int chunk) const {
    constexpr int kWords = Four<kAligned>::kWords;
    const int first_item = four.k8 * c_.rows(), position = position_of_four(four.at);
    const int stride_log2 = __ffs(in_.stride) - 1;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int offset = four.at * 4 + e - c_.fours_shift;  // from the tile's first input
      const int row = offset >> stride_log2, phase = offset & (in_.stride - 1);
      if (offset < 0 || row >= c_.phase_rows) continue;
      const int its_item = first_item + phase * c_.phase_rows + row;
      const bool elsewhere = !is_inside(position + e) && p_.arguments.pad != CONVNORM_ZEROS;
      uint32_t of_row[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) of_row[j] = four.bits[j][e * kWords / 4];
      if (elsewhere) load_channels(of_row, source_of(its_item, true), chunk, true);
      if (kWords == 2 && e % 2 == 1 && !elsewhere) {
        Base::template store_halves<0x7632>(of_row, shared_ + p_.plan.x + slot * p_.plan.x_slot_bytes + its_item * 16);
      } else {
        store_item(of_row, slot, its_item);
      }
    }
  }

  // The lines of a chunk's fours, on their way to the second-level cache while a slot is awaited.
  __device__ __forceinline__ void request_fours(int thread, int threads, int chunk) const {
    constexpr int kFoursOfLine = 128 / (4 * sizeof(Element));
    const int across = static_cast<int>(c_.fours.value), items = 2 * c_.chunk_k16 * across;
#pragma unroll 1
    for (int item = thread + threads; item < items; item += threads) {  // the first is asked for by itself
      const int k8 = static_cast<int>(c_.fours.divide(item)), at = item - k8 * across;
      const int position = position_of_four(at), channel = chunk * 16 * c_.chunk_k16 + 8 * k8;
      if (at % kFoursOfLine != 0 || !is_inside(position)) continue;
      const Element* from = x_ + int64_t{channel} * in_.channel_step + position;
#pragma unroll
      for (int j = 0; j < 8; ++j, from += in_.channel_step) {
        if (channel + j < in_.channels) ptx::prefetch_l2_line(from);
      }
    }
  }

  // A slot by fours. While one is converted, the next is on its way.
  template <bool kAligned>
  __device__ __forceinline__ void fill_by_fours(int thread, int threads, int slot, uint32_t parity, int chunk) const {
    const int items = 2 * c_.chunk_k16 * static_cast<int>(c_.fours.value);
    request_fours(thread, threads, chunk);
    Four<kAligned> four;
    load_four(four, thread, chunk);
    await_empty(slot, parity);
#pragma unroll 1
    for (int item = thread; item < items; item += threads) {
      Four<kAligned> next;
      load_four(next, item + threads, chunk);
      store_four(four, slot, chunk);
      four = next;
    }
  }

  __device__ __forceinline__ void await_empty(int slot, uint32_t parity) const {
    wait(barrier(p_.plan.x_empty, slot), parity, "an empty slot of x");
  }

  // A slot item by item.
  __device__ __forceinline__ void fill_by_items(int thread, int threads, int slot, int chunk) const {
    constexpr int kBatch = 2;
#pragma unroll 1
    for (int item = thread; item < c_.slot_items; item += kBatch * threads) {
      uint32_t bits[kBatch][8];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) load_channels(bits[u], source_of(item + u * threads, true), chunk, true);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (item + u * threads < c_.slot_items) store_item(bits[u], slot, item + u * threads);
      }
    }
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
