// x (N, C_in, L) or (N, L, C_in) -> shared memory as [part][k8][row][8 channels] of 16 bits, in which the next row is
// the next 16 bytes: so one copy of x serves all taps. It is K-major without swizzle for wgmma's descriptors, and for
// ldmatrix eight neighbouring rows lie in eight different banks.
//
// An item is one row's eight channels: eight loads, coalesced over the lanes, which take neighbouring rows; one 16-byte
// store for each part.
#pragma once

#include "kernels/cuda/collective/store.cuh"
#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx/memory.cuh"

namespace convnorm::cuda {

// Items of the tiles of a CTA, tile after tile.
template <class T>
class XRows {
 public:
  using Element = typename T::Element;
  using Operand = typename T::Operand;
  using Parameters = typename T::Parameters;
  using Config = decltype(Parameters::config);

 protected:
  __device__ __forceinline__ explicit XRows(const Parameters& p) : p_(p), in_(p.input), c_(p.config), walk_(p.config) {}

  // Eight channels of a row of chunk 0.
  struct Source {
    const Element* address;
    int channels;  // from here to the last one; none or fewer for zeros
  };

  __device__ __forceinline__ bool next_tile() {
    const bool any = walk_.next();
    begin_tile(any);
    return any;
  }

  // Where the walk stands.
  __device__ __forceinline__ void begin_tile(bool any) {
    x_ = static_cast<const Element*>(in_.x) + int64_t{walk_.first_sample} * in_.sample_elements;
    first_position_ = walk_.first_position * in_.stride - in_.pad_left;
    length_ =
        in_.lengths != nullptr && any ? static_cast<int>(sample_length(p_.arguments, walk_.first_sample)) : in_.length;
  }

  __device__ __forceinline__ Source source_of(int item, bool wanted) const {
    const int k8 = static_cast<int>(c_.slot_rows.divide(item));
    const int row = item - k8 * c_.rows();
    wanted = wanted && item < c_.slot_items;
    const Element* address = x_;
    int source = first_position_ + row;
    if (c_.plain_rows) {
      wanted = wanted && static_cast<unsigned>(source) < static_cast<unsigned>(length_);
    } else {
      source = wanted ? general_source(row, address) : -1;
      wanted = source >= 0;
    }
    return {address + (int64_t{8 * k8} * in_.channel_step + int64_t{source} * in_.position_step),
            wanted ? in_.channels - 8 * k8 : 0};
  }

  __device__ __forceinline__ int first_channel_of(int chunk) const { return chunk * 16 * c_.chunk_k16; }

  // What lies where `source` lies in chunk 0.
  __device__ __forceinline__ Source in_chunk(const Source& source, int chunk) const {
    const int first = first_channel_of(chunk);
    return {source.address + int64_t{first} * in_.channel_step, source.channels - first};
  }

  // As bits of elements; zeros in the padding and past the last channel or sample.
  __device__ __forceinline__ void load_channels(uint32_t (&bits)[8], const Source& source, int chunk,
                                                bool wanted) const {
    const auto [address, its] = in_chunk(source, chunk);
    const int channels = wanted ? its : 0;
    // No branch for eight or none: loads behind one wait for those before it.
#pragma unroll
    for (int j = 0; j < 8; ++j) bits[j] = ptx::load_bits(address + int64_t{j} * in_.channel_step, channels > j);
  }

  // The position from which a row comes, of the sample to which `address` moves; -1 for zeros.
  __device__ __forceinline__ int general_source(int row, const Element*& address) const {
    const Arguments& a = p_.arguments;
    int phase = 0;
    if (in_.stride > 1) {
      phase = static_cast<int>(c_.phase_row_divisor.divide(row));
      row -= phase * c_.phase_rows;
    }
    const int sample = row & (c_.samples - 1), n = walk_.first_sample + sample;
    if (n >= a.n) return -1;
    address += int64_t{sample} * in_.sample_elements;
    const auto length = static_cast<int>(sample_length(a, n));
    int i = first_position_ + (row >> c_.samples_log2) * in_.stride + phase;
    if (i >= 0 && i < length) return i;
    if (a.pad == CONVNORM_ZEROS || length == 0) return -1;
    if (a.pad == CONVNORM_REFLECT) i = i < 0 ? -i : 2 * (length - 1) - i;
    return max(0, min(i, length - 1));
  }

  // To its place in a slot.
  __device__ __forceinline__ void store_item(const uint32_t (&bits)[8], unsigned char* destination) const {
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

  const Parameters& p_;
  const Input& in_;
  const Config& c_;
  typename WalkOf<T>::Type walk_;
  const Element* x_;    // of the tile's first sample
  int first_position_;  // in x, of the tile's first row; negative in the padding
  int length_;          // of plain rows, beyond which there are zeros
  bool any_;            // there is such a tile
};

}  // namespace convnorm::cuda
