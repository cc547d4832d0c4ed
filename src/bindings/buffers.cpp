#include "bindings/buffers.hpp"

#include <array>
#include <cstdint>
#include <cstring>

#include "descriptor/text.hpp"

namespace convnorm {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kGpuAlignment = 256;
constexpr std::array<char, 8> kMagic = {'c', 'o', 'n', 'v', 'n', 'o', 'r', 'm'};
constexpr uint32_t kFormat = 1;  // changes whenever any path packs differently

// Stands at the first byte of the packed buffer, read and written by memcpy because that byte may be unaligned.
struct Header {
  std::array<char, 8> magic;
  uint32_t format;
  uint32_t offset;       // of the weight from the header: depends on the address at which it was packed
  uint64_t fingerprint;  // of problem, path, target and packing
  uint64_t bytes;        // of the weight
  std::array<char, 32> reserved;
};
static_assert(sizeof(Header) == kAlignment);

size_t alignment(const convnorm_plan& plan) { return plan.gpu ? kGpuAlignment : kAlignment; }

uint32_t offset_to_aligned(const void* address, size_t alignment = kAlignment) {
  return static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(address) % alignment);
}

char* aligned(void* address, size_t alignment) {
  return static_cast<char*>(address) + offset_to_aligned(address, alignment);
}

}  // namespace

size_t packed_buffer_bytes(const convnorm_plan& plan) {
  return (plan.gpu ? 0 : sizeof(Header)) + alignment(plan) + plan.executable->packed_bytes();
}

size_t workspace_buffer_bytes(const convnorm_plan& plan) {
  const size_t bytes = plan.executable->workspace_bytes();
  return bytes == 0 ? 0 : bytes + alignment(plan);
}

void check_buffer(const char* name, const void* buffer, size_t size, size_t needed) {
  if (size < needed) {
    fail(CONVNORM_BUFFER_TOO_SMALL, "{} has {} bytes, but this plan needs {}; ask the plan for the size", name, size,
         needed);
  }
  if (buffer == nullptr && needed > 0) {
    fail(CONVNORM_INVALID_ARGUMENT, "{} is null, but this plan needs {} bytes", name, needed);
  }
}

void* usable_workspace(const convnorm_plan& plan, void* workspace) {
  return workspace == nullptr ? nullptr : aligned(workspace, alignment(plan));
}

void* begin_packed(const convnorm_plan& plan, void* packed) {
  if (plan.gpu) return aligned(packed, kGpuAlignment);
  char* after_header = static_cast<char*>(packed) + sizeof(Header);
  const Header header{.magic = kMagic,
                      .format = kFormat,
                      .offset = static_cast<uint32_t>(sizeof(Header)) + offset_to_aligned(after_header),
                      .fingerprint = plan.fingerprint,
                      .bytes = plan.executable->packed_bytes(),
                      .reserved = {}};
  std::memcpy(packed, &header, sizeof(header));
  return static_cast<char*>(packed) + header.offset;
}

const void* open_packed(const convnorm_plan& plan, const void* packed) {
  if (plan.gpu) return aligned(const_cast<void*>(packed), kGpuAlignment);
  Header header;
  std::memcpy(&header, packed, sizeof(header));
  if (header.magic != kMagic || header.format != kFormat) {
    fail(CONVNORM_PACKED_MISMATCH,
         "packed_weight does not start with this version's header; fill it by convnorm_pack_weight");
  }
  if (header.fingerprint != plan.fingerprint || header.bytes != plan.executable->packed_bytes()) {
    fail(CONVNORM_PACKED_MISMATCH,
         "packed_weight was packed for another plan than path {} on target {} of {}; pack the weight with this plan",
         plan.implementation->name, plan.target, print_problem(plan.problem));
  }
  const char* weight = static_cast<const char*>(packed) + header.offset;
  if (header.offset < sizeof(Header) || header.offset >= sizeof(Header) + kAlignment ||
      offset_to_aligned(weight) != 0) {
    fail(CONVNORM_PACKED_MISMATCH,
         "packed_weight was copied to the address {}, which is aligned differently; copy between addresses that are "
         "multiples of {}, or pack again",
         packed, kAlignment);
  }
  return weight;
}

}  // namespace convnorm
