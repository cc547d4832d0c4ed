// x into its slots of shared memory, by the warps that load and, at first, by all others too.
#pragma once

#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/sm90_onchip/raw_rows.cuh"

namespace convnorm::cuda::sm90_onchip {

template <class T>
class XLoader : RawRows<T> {
  using Base = RawRows<T>;
  using Base::first_fill_raw, Base::refill_raw;
  using Base::next_tile, Base::source_of, Base::load_channels, Base::store_parts;
  using Base::p_, Base::in_, Base::c_, Base::walk_, Base::x_, Base::first_position_, Base::any_, Base::length_;
  using Base::shared_, Base::awaits, Base::await_empty, Base::barrier, Base::is_inside, Base::kPairs;
  using typename Base::Source;

 public:
  using Element = typename T::Element;

  // By whom a unit is loaded at first: half a unit would leave half of a warpgroup without rows.
  static constexpr int kUnitThreads = T::kUnitColumns == 64 ? 32 : 128;

  // Rows may be copied as they are: they are no more bytes than their operands, and there are registers for it.
  static constexpr bool kRaw = !T::kFours && !T::kWide && 2 * T::kParts >= sizeof(Element);

  __device__ __forceinline__ XLoader(const typename T::Parameters& p, unsigned char* shared) : Base(p, shared) {}

  // The first x_slots chunks of the CTA's first tile, by all warps but the one that feeds weights; `loader` of them are
  // those that load x, or negative. Computing warps wait for the barriers behind the first loads.
  __device__ __forceinline__ void first_fill(int warp, int loader) {
    if constexpr (kRaw) {
      if (p_.raw_fill) return first_fill_raw(warp, loader);
    }
    if constexpr (!T::kFours && !T::kByWarps) {
      if (p_.refill_by_units) return first_fill_by_units(warp, loader);
    }
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
          if (awaits(loader)) await_barriers<T>(warp);
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          const int its_chunk = chunk + (two ? u / 2 : u);
          const int item = first + (two && u % 2 == 1 ? threads : 0) + thread;
          if (its_chunk < c_.x_slots) {
            if (item < c_.slot_items) store_item(bits[u], its_chunk, item);
            if (last && !(two && u % 2 == 0)) publish_alone(its_chunk);
          }
        }
      }
    }
  }

  // The same where tiles have whole samples: all warps take units in turn, as refills do, and have the second on its
  // way while they convert the first.
  __device__ __forceinline__ void first_fill_by_units(int warp, int loader) {
    any_ = next_tile();
    const PlainFill& fill = p_.fill;
    const int step = static_cast<int>(blockDim.x) / 32 - 1;
    const uint32_t shared = ptx::shared_address(shared_) + fill.first;
    const Rows<32> rows(*this);
    const auto slot_of = [&](int unit) { return unit >> fill.slot_units_log2; };
    const auto place_of = [&](int unit) {
      const int slot = slot_of(unit);
      return shared + slot * fill.slot_bytes + (unit - (slot << fill.slot_units_log2)) * fill.unit_bytes;
    };
    const auto ask_for = [&](int unit) {
      if (unit < fill.units && any_) rows.copy(unit, place_of(unit), fill.second);
      ptx::commit_copies();
    };
    int unit = warp - (loader < 0 ? 0 : 1), slot = 0;
    ask_for(unit);
    if (awaits(loader)) await_barriers<T>(warp);
#pragma unroll 1
    for (; unit < fill.units; unit += step) {
      ask_for(unit + step);
      for (; slot < slot_of(unit); ++slot) publish_alone(slot);
      if (any_) {
        clear_beside(unit);
        ptx::wait_copies<1>();
        __syncwarp();
        convert_unit_alone(place_of(unit), fill.second);
      }
    }
    for (; slot < c_.x_slots; ++slot) publish_alone(slot);
  }

  // The same where rows are positions: computing warpgroup 0, which multiplies first, loads one unit, the other
  // warpgroups and those of the loader warps that make up one take all others in turn. In tiles of 64 columns each of
  // these loader warps has units of its own, and computing warps have none: they fetch the code of their products
  // meanwhile. By asynchronous copies: little code, which a launch has to fetch first, and no registers for what is on
  // its way. What can be done meanwhile is done between ask_for_own() and fill_own().
  static __device__ __forceinline__ bool has_own(int loader) {
    return (kUnitThreads == 128 && loader < 0) || loader >= T::kHaloWarps;
  }

  __device__ __forceinline__ void ask_for_own(int warp, int loader) {
    any_ = next_tile();
    const Units own(*this, warp, loader);
    const Rows<kUnitThreads> rows(*this);
    int unit = own.first;
#pragma unroll 1
    for (int i = 0; i < kAhead; ++i, unit += own.step) ask_for(own, rows, unit);
  }

  __device__ __forceinline__ void fill_own(int warp, int loader) {
    const Units own(*this, warp, loader);
    const Rows<kUnitThreads> rows(*this);
    if (awaits(loader)) await_barriers<T>(warp);
#pragma unroll 1
    for (int unit = own.first; unit < own.fill.units; unit += own.step) {
      if (any_) {
        ptx::wait_copies<kAhead - 1>();
        ask_for(own, rows, unit + kAhead * own.step);
        if constexpr (kUnitThreads == 32) {
          __syncwarp();  // all have waited for their copies
          convert_unit_alone(own.region(unit), own.fill.second);
        } else {
          convert_unit(own.first, own.region(unit), own.fill.second);
        }
      }
      publish(own.slot(unit), 128 / kUnitThreads);
    }
  }

  // Rows beside the tile's own, by the halo warps: an item is eight channels of one.
  __device__ __forceinline__ void fill_halo(int loader) {
    any_ = next_tile();
    const int items = 2 * c_.beside * c_.chunk_k16 * c_.x_slots, slot_rows = 2 * c_.chunk_k16 * c_.rows();
#pragma unroll 1
    for (int item = 32 * loader + threadIdx.x % 32; item < items; item += 32 * T::kHaloWarps) {
      uint32_t bits[8];
      const int its_item = load_beside(bits, item, 0, any_);  // all slots as one
      const int slot = static_cast<int>(c_.slot_rows.divide(its_item)) >> __ffs(c_.chunk_k16);
      store_item(bits, slot, its_item - slot * slot_rows);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    for (int slot = threadIdx.x % 32; slot < c_.x_slots; slot += 32) {
      ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot));
    }
  }

  // All chunks of all tiles, by the loader warps alone.
  __device__ __forceinline__ void fill(int loader_warp) {
    constexpr int kThreads = 32 * T::kLoaderWarps;
    if constexpr (kRaw) {
      if (p_.raw_fill) return refill_raw(loader_warp, 0, 1);  // slots are empty: the phase before the first is over
    }
    const int thread = 32 * loader_warp + static_cast<int>(threadIdx.x) % 32;
    int slot = 0;
    uint32_t parity = 1;
    while (next_tile()) {
#pragma unroll 1
      for (int chunk = 0; chunk < c_.chunks; ++chunk) {
        await_empty(slot, parity);
        fill_by_items(thread, kThreads, slot, chunk);
        publish(slot, 1);
        if (++slot == c_.x_slots) slot = 0, parity ^= 1;
      }
    }
  }

  // Everything after the first fill, by the loader warps, with a loader of its own: what one would keep from the first
  // fill would be spilled.
  __device__ __forceinline__ void refill(int loader_warp) {
    constexpr int kThreads = 32 * T::kLoaderWarps;
    if constexpr (kRaw) {
      if (p_.raw_fill) return refill_raw(loader_warp, c_.x_slots, 0);
    }
    const int thread = 32 * loader_warp + threadIdx.x % 32;
    // By proxy for all that took part in the first fill.
    const uint32_t arrivals = loader_warp == 0 ? p_.x_arrivals - (T::kLoaderWarps - 1) : 1;
    if (!next_tile()) return;
    int slot = 0;
    uint32_t parity = 0;
    int chunk = c_.x_slots, first_unit = loader_warp;
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
        } else if (!T::kFours && p_.refill_by_units) {
          fill_by_units(loader_warp, first_unit, slot, parity, chunk);
          // The next chunk's first unit goes to the warp behind that of the present one's last.
          first_unit -= (1 << p_.fill.slot_units_log2) % T::kLoaderWarps;
          if (first_unit < 0) first_unit += T::kLoaderWarps;
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
  // A unit: 128 positions of eight channels, or of sixteen of 16 bits; in tiles of 64 columns 64. It is copied as it is
  // to where its operands will lie: in either form it is two regions, which are those of two parts or of two times
  // eight channels.
  static constexpr int kUnitChannels = kPairs ? 16 : 8;
  static constexpr int kRowBytes = T::kUnitColumns * sizeof(Element);

  // Units that they have on their way. All at once would be late: the first of them would come among the last of
  // others.
  static constexpr int kAhead = kUnitThreads == 32 ? 4 : 2;

  // Those of a warpgroup or a warp: first, first + step, ...
  struct Units {
    static constexpr int kExtraWarps = T::kLoaderWarps - T::kHaloWarps;

    const PlainFill& fill;
    const uint32_t shared;
    const int first, step;

    __device__ __forceinline__ Units(const XLoader& of, int warp, int loader)
        : fill(of.p_.fill),
          shared(ptx::shared_address(of.shared_) + fill.first),
          first(kUnitThreads == 32 ? loader - T::kHaloWarps
                : loader < 0       ? warp / 4
                                   : of.c_.warpgroups),
          step(kUnitThreads == 32 ? kExtraWarps
               : first == 0       ? fill.units
                                  : of.c_.warpgroups - (kExtraWarps > 0 ? 0 : 1)) {}

    __device__ __forceinline__ int slot(int unit) const { return unit >> fill.slot_units_log2; }
    __device__ __forceinline__ uint32_t region(int unit) const {
      return shared + slot(unit) * fill.slot_bytes + (unit - (slot(unit) << fill.slot_units_log2)) * fill.unit_bytes;
    }
  };

  // A thread's share of copying rows, channels of x, by a warpgroup or by a warp: a piece of 16 bytes of some rows of a
  // unit.
  template <int kThreads>
  struct Rows {
    static constexpr int kPieces = kRowBytes / 16, kElements = 16 / sizeof(Element), kAtOnce = kThreads / kPieces;
    static constexpr int kRegionRows = kUnitChannels / 2;

    const XLoader& of;
    const int row, piece;  // of the unit's first kAtOnce
    int left;              // positions of a row from the tile's first on
    const Element* first;  // of the thread's row of unit 0

    __device__ __forceinline__ explicit Rows(const XLoader& loader)
        : of(loader),
          row(threadIdx.x % kThreads / kPieces),
          piece(threadIdx.x % kPieces),
          left(loader.length_ - loader.walk_.first_position),
          first(loader.x_ + int64_t{row} * loader.in_.length + loader.walk_.first_position) {
      if (kThreads == 128 || loader.c_.samples == 1) return;
      // The pieces of whole samples: as many positions of each as the tile has.
      const int position = piece * kElements, sample = position * loader.c_.samples / T::kUnitColumns;
      first += sample * (loader.in_.sample_elements - loader.c_.tile_positions);
      left = loader.walk_.first_sample + sample < loader.p_.arguments.n ? T::kUnitColumns : 0;
    }

    // In `kCopies` copies, whose words neighbouring lanes take in turn. One copy needs rows that start on 16 bytes.
    template <int kCopies>
    __device__ __forceinline__ void copy(int unit, uint32_t to, int second) const {
      constexpr int kSome = kElements / kCopies;  // elements of a copy
      int channel = unit * kUnitChannels + row;
      const Element* from = first + int64_t{unit} * kUnitChannels * of.in_.length;
#pragma unroll
      for (int j = 0; j < kUnitChannels; j += kAtOnce) {
        const int end = channel < of.in_.channels ? left : 0;
        const uint32_t its = to + (j < kRegionRows ? 0 : second) + (j % kRegionRows + row) * kRowBytes;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          const int some = i * kPieces + piece;
          ptx::copy_async_some<16 / kCopies>(its + some * (16 / kCopies), from + some * kSome,
                                             min(max(end - some * kSome, 0), kSome) * sizeof(Element));
        }
        channel += kAtOnce;
        from += int64_t{kAtOnce} * of.in_.length;
      }
    }
    __device__ __forceinline__ void copy(int unit, uint32_t to, int second) const {
      if (of.p_.vectors_of_x) {
        copy<1>(unit, to, second);
      } else {
        copy<4>(unit, to, second);
      }
    }
  };

  // An empty group of copies past the last unit, so that as many are on their way as waits count on.
  __device__ __forceinline__ void ask_for(const Units& own, const Rows<kUnitThreads>& rows, int unit) const {
    if (unit < own.fill.units && any_) rows.copy(unit, own.region(unit), own.fill.second);
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

  // The same by one warp, of one sample's positions or of whole samples: a row of the copied unit has sample after
  // sample, operands have them side by side.
  __device__ __forceinline__ void convert_unit_alone(uint32_t at, int second) const {
    unsigned char* const first = shared_ + (at - ptx::shared_address(shared_));
    const int lane = threadIdx.x % 32, samples_log2 = c_.samples_log2;
    const auto element_of = [&](int position, int sample) { return sample * c_.tile_positions + position; };
    if constexpr (kPairs) {
      constexpr int kEach = T::kUnitColumns / 64;
#pragma unroll
      for (int region = 0; region < 2; ++region) {
        unsigned char* const its = first + region * second;
        uint32_t bits[kEach][8];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const int pair = lane + 32 * i, sample = pair & (c_.samples - 1), position = 2 * (pair >> samples_log2);
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            bits[i][j] = *reinterpret_cast<const uint32_t*>(its + j * kRowBytes + 2 * element_of(position, sample));
          }
        }
        __syncwarp();  // all have read
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const int pair = lane + 32 * i, sample = pair & (c_.samples - 1), position = 2 * (pair >> samples_log2);
          unsigned char* const row = its + 16 * ((position << samples_log2) + sample);
          Base::template store_halves<0x5410>(bits[i], row);
          Base::template store_halves<0x7632>(bits[i], row + (16 << samples_log2));
        }
      }
    } else {
      constexpr int kEach = T::kUnitColumns / 32;
      uint32_t bits[kEach][8];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int row = lane + 32 * i, element = element_of(row >> samples_log2, row & (c_.samples - 1));
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          bits[i][j] = *reinterpret_cast<const uint32_t*>(first + j / 4 * second + j % 4 * kRowBytes + 4 * element);
        }
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kEach; ++i) store_parts(bits[i], first + 16 * (lane + 32 * i));
    }
  }

  // Rows beside whole samples, of a unit counted through all slots, are zeros in all tiles.
  __device__ __forceinline__ void clear_beside(int unit) const {
    const int slot = unit >> p_.fill.slot_units_log2, its_unit = unit - (slot << p_.fill.slot_units_log2);
    const int above = in_.pad_left << c_.samples_log2, beside = c_.rows() - T::kUnitColumns;
    unsigned char* const first =
        shared_ + p_.plan.x + slot * p_.plan.x_slot_bytes + its_unit * (kUnitChannels / 8) * c_.rows() * 16;
#pragma unroll 1
    for (int part = 0; part < T::kParts * (kUnitChannels / 8); ++part) {
      // Parts of one k8, or two k8 of one part.
      unsigned char* const rows = first + part * (T::kParts > 1 ? p_.plan.x_part_bytes : c_.rows() * 16);
#pragma unroll 1
      for (int i = threadIdx.x % 32; i < beside; i += 32) {
        *reinterpret_cast<uint4*>(rows + 16 * (i < above ? i : i + T::kUnitColumns)) = make_uint4(0, 0, 0, 0);
      }
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

  // A slot of plain rows, or of whole samples, by warps that take whole units from copies to operands.
  __device__ __forceinline__ void fill_by_units(int loader_warp, int first_unit, int slot, uint32_t parity,
                                                int chunk) const {
    const PlainFill& fill = p_.fill;
    const int units = 1 << fill.slot_units_log2, lane = threadIdx.x % 32;
    const uint32_t own = ptx::shared_address(shared_) + fill.first + slot * fill.slot_bytes;
    const Rows<32> rows(*this);
    await_empty(slot, parity);
#pragma unroll 1
    for (int unit = first_unit; unit < units; unit += T::kLoaderWarps) {
      rows.copy(chunk * units + unit, own + unit * fill.unit_bytes, fill.second);
    }
    ptx::commit_copies();
    // Whole samples have zeros beside them, which are there since the first fill.
    const int items = c_.samples > 1 ? 0 : 2 * c_.beside * c_.chunk_k16;
#pragma unroll 1
    for (int item = 32 * loader_warp + lane; item < items; item += 32 * T::kLoaderWarps) {
      uint32_t bits[8];
      const int its_item = load_beside(bits, item, chunk, true);
      store_item(bits, slot, its_item);
    }
    ptx::wait_copies<0>();
    __syncwarp();
#pragma unroll 1
    for (int unit = first_unit; unit < units; unit += T::kLoaderWarps) {
      convert_unit_alone(own + unit * fill.unit_bytes, fill.second);
    }
  }

  // An item beside the tile's own positions, of those of a chunk. Returns its number in a slot.
  __device__ __forceinline__ int load_beside(uint32_t (&bits)[8], int item, int chunk, bool wanted) const {
    const int k8 = static_cast<int>(c_.halo_rows.divide(item)), beside = item - k8 * c_.beside;
    const int row = beside < in_.pad_left ? beside : beside + T::kUnitColumns;
    const int position = first_position_ + row;
    const bool inside = wanted && static_cast<unsigned>(position) < static_cast<unsigned>(length_);
    load_channels(bits, {x_ + int64_t{8 * k8} * in_.length + position, inside ? in_.channels - 8 * k8 : 0}, chunk,
                  true);
    return k8 * c_.rows() + row;
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

  // This warp's stores to a slot are done.
  __device__ __forceinline__ void publish(int slot, uint32_t arrivals) const {
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot), arrivals);
  }

  // The same by every lane for itself: other threads will refill the slot, and racecheck takes an arrival for nobody
  // but the lane that executes it.
  __device__ __forceinline__ void publish_alone(int slot) const {
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot));
  }
};

}  // namespace convnorm::cuda::sm90_onchip
