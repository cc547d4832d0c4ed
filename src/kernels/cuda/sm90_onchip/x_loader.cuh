// x (N, C_in, L) -> shared memory as [part][k8][row][8 channels] of 16 bits, the K-major layout without swizzle in
// which the next row is the next 16 bytes: so one copy of x serves all taps.
//
// An item is one row's eight channels: eight loads, coalesced over the lanes, which take neighbouring rows; one 16-byte
// store for each part.
#pragma once

#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/collective/wait.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90_onchip/traits.cuh"
#include "kernels/cuda/sm90_onchip/walk.cuh"

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
class XLoader {
 public:
  using Element = typename T::Element;
  using Operand = typename T::Operand;

  __device__ __forceinline__ XLoader(const Parameters& p, unsigned char* shared)
      : p_(p), in_(p.input), c_(p.config), shared_(shared), walk_(p.config) {}

  // The first x_slots chunks of the CTA's first tile, by all warps but the one that feeds weights; `loader` of them are
  // those that load x, or negative. Waits for await_barriers() behind the first loads.
  __device__ __forceinline__ void first_fill(int warp, int loader) {
    const int threads = static_cast<int>(blockDim.x) - 32, thread = static_cast<int>(threadIdx.x) - (loader < 0 ? 0 : 32);
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
  // code, which a launch has to fetch first, and no registers for what is on its way.
  __device__ __forceinline__ void first_fill_plain(int warp, int loader) {
    any_ = next_tile();
    if (loader >= 0 && loader < T::kHaloWarps) {
      fill_halo(warp, loader);
    } else {
      fill_own(warp, loader);
    }
  }

  // Everything after the first fill, by the loader warps, with a loader of its own: what one would keep from the first fill
  // would be spilled.
  __device__ __forceinline__ void refill(int loader_warp) {
    constexpr int kThreads = 32 * T::kLoaderWarps;
    const int thread = 32 * loader_warp + threadIdx.x % 32;
    // By proxy for all that took part in the first fill.
    const uint32_t arrivals = loader_warp == 0 ? p_.x_arrivals - (T::kLoaderWarps - 1) : 1;
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

  // Units group, group + step, ... by warpgroup `group`.
  __device__ __forceinline__ void fill_own(int warp, int loader) {
    const int group = loader < 0 ? warp / 4 : c_.warpgroups;
    const int slot_units_log2 = __ffs(c_.chunk_k16) - (kPairs ? 1 : 0), units = c_.x_slots << slot_units_log2;
    const int groups = c_.warpgroups + (T::kLoaderWarps > T::kHaloWarps ? 1 : 0);
    const int step = group == 0 ? units : groups - 1;
    const uint32_t own = ptx::shared_address(shared_) + p_.plan.x + in_.pad_left * 16;
    const int k8_bytes = c_.rows() * 16, second = kPairs ? k8_bytes : p_.plan.x_part_bytes;
    const auto region = [&](int unit) {
      const int slot = unit >> slot_units_log2, its_unit = unit - (slot << slot_units_log2);
      return own + slot * p_.plan.x_slot_bytes + its_unit * (kPairs ? 2 : 1) * k8_bytes;
    };
    int asked = 0;  // units
    const Rows rows(*this);
#pragma unroll 1
    for (int unit = group; unit < units && any_; unit += step, ++asked) {
      if (p_.vectors_of_x) {
        rows.template copy<1>(unit, region(unit), second);
      } else {
        rows.template copy<4>(unit, region(unit), second);
      }
      ptx::commit_copies();
    }
    await_barriers<T>(warp, loader);
#pragma unroll 1
    for (int unit = group; unit < units; unit += step) {
      if (any_) {
        wait_for_all_but(--asked);
        convert_unit(group, region(unit), second);
      }
      publish(unit >> slot_units_log2, 1);
    }
  }

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

  // Until at most `units` of those that this thread has asked for are on their way.
  static __device__ __forceinline__ void wait_for_all_but(int units) {
    switch (units) {
      case 0:
        return ptx::wait_copies<0>();
      case 1:
        return ptx::wait_copies<1>();
      case 2:
        return ptx::wait_copies<2>();
      case 3:
        return ptx::wait_copies<3>();
      default:
        return ptx::wait_copies<4>();
    }
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
      store_halves<0x5410>(bits, mine + 32 * pair);
      store_halves<0x7632>(bits, mine + 32 * pair + 16);
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
        store_halves<0x7632>(of_row, shared_ + p_.plan.x + slot * p_.plan.x_slot_bytes + its_item * 16);
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

  // That the slot was full follows, by way of the warpgroups that read it, which racecheck does not.
  __device__ __forceinline__ void await_empty(int slot, uint32_t parity) const {
    wait(barrier(p_.plan.x_full, slot), parity, "a full slot of x");
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

  // Rows beside the tile's own, by the halo warps: an item is eight channels of one.
  __device__ __forceinline__ void fill_halo(int warp, int loader) {
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
    for (int slot = threadIdx.x % 32; slot < c_.x_slots; slot += 32) ptx::mbarrier_arrive(barrier(p_.plan.x_full, slot));
  }

  // Eight channels of a row of chunk 0.
  struct Source {
    const Element* address;
    int channels;  // from here to the last one; none or fewer for zeros
  };

  __device__ __forceinline__ bool next_tile() {
    const bool any = walk_.next();
    x_ = static_cast<const Element*>(in_.x) + int64_t{walk_.first_sample} * in_.sample_elements;
    first_position_ = walk_.first_position * in_.stride - in_.pad_left;
    return any;
  }

  __device__ __forceinline__ Source source_of(int item, bool wanted) const {
    const int k8 = static_cast<int>(c_.slot_rows.divide(item));
    const int row = item - k8 * c_.rows();
    wanted = wanted && item < c_.slot_items;
    const Element* address = x_ + int64_t{8 * k8} * in_.channel_step;
    if (c_.plain_rows) {
      const int source = first_position_ + row;
      wanted = wanted && static_cast<unsigned>(source) < static_cast<unsigned>(in_.length);
      address += source;
    } else {
      wanted = wanted && general_source(row, address);
    }
    return {address, wanted ? in_.channels - 8 * k8 : 0};
  }

  // As bits of elements; zeros in the padding and past the last channel or sample.
  __device__ __forceinline__ void load_channels(uint32_t (&bits)[8], const Source& source, int chunk,
                                                bool wanted) const {
    const int first = chunk * 16 * c_.chunk_k16;
    const Element* address = source.address + int64_t{first} * in_.channel_step;
    const int channels = wanted ? source.channels - first : 0;
    if ((in_.channels & 7) == 0) {  // all eight or none
#pragma unroll
      for (int j = 0; j < 8; ++j) bits[j] = ptx::load_bits(address + int64_t{j} * in_.channel_step, channels > 0);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) bits[j] = ptx::load_bits(address + int64_t{j} * in_.channel_step, channels > j);
    }
  }

  // Moves `address` to what a row comes from; false for zeros.
  __device__ __forceinline__ bool general_source(int row, const Element*& address) const {
    const Arguments& a = p_.arguments;
    int phase = 0;
    if (in_.stride > 1) {
      phase = static_cast<int>(c_.phase_row_divisor.divide(row));
      row -= phase * c_.phase_rows;
    }
    const int sample = row & (c_.samples - 1), n = walk_.first_sample + sample;
    if (n >= a.n) return false;
    const auto length = static_cast<int>(sample_length(a, n));
    int i = first_position_ + (row >> c_.samples_log2) * in_.stride + phase;
    if (i < 0 || i >= length) {
      if (a.pad == CONVNORM_ZEROS || length == 0) return false;
      if (a.pad == CONVNORM_REFLECT) i = i < 0 ? -i : 2 * (length - 1) - i;
      i = max(0, min(i, length - 1));
    }
    address += int64_t{sample} * in_.sample_elements + int64_t{i} * in_.position_step;
    return true;
  }

  __device__ __forceinline__ void store_item(const uint32_t (&bits)[8], int slot, int item) const {
    unsigned char* destination = shared_ + p_.plan.x + slot * p_.plan.x_slot_bytes + item * 16;
    if constexpr (sizeof(Element) == 2) {
      store_halves<0x5410>(bits, destination);
    } else {
      store_parts(bits, destination);
    }
  }

  // The lower or the upper halves of eight words.
  template <unsigned kHalves>
  static __device__ __forceinline__ void store_halves(const uint32_t (&bits)[8], unsigned char* destination) {
    *reinterpret_cast<uint4*>(destination) =
        make_uint4(__byte_perm(bits[0], bits[1], kHalves), __byte_perm(bits[2], bits[3], kHalves),
                   __byte_perm(bits[4], bits[5], kHalves), __byte_perm(bits[6], bits[7], kHalves));
  }

  __device__ __forceinline__ void store_parts(const uint32_t (&bits)[8], unsigned char* destination) const {
    float rest[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) rest[j] = __uint_as_float(bits[j]);
#pragma unroll
    for (int part = 0; part < T::kParts; ++part) {
      uint32_t packed[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) packed[j] = pack_pair<Operand>(rest[2 * j], rest[2 * j + 1]);
      *reinterpret_cast<uint4*>(destination + part * p_.plan.x_part_bytes) =
          make_uint4(packed[0], packed[1], packed[2], packed[3]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        rest[2 * j] -= __uint_as_float(packed[j] << 16);
        rest[2 * j + 1] -= __uint_as_float(packed[j] & 0xffff0000u);
      }
    }
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

  const Parameters& p_;
  const Input& in_;
  const Config& c_;
  unsigned char* const shared_;
  Walk walk_;
  const Element* x_;    // of the tile's first sample
  int first_position_;  // in x, of the tile's first row; negative in the padding
  bool any_;            // there is a first tile
};

}  // namespace convnorm::cuda::sm90_onchip
