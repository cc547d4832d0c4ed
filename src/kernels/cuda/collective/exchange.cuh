// Statistics of a group whose rows and columns lie in several warpgroups, of this CTA or of others.
//
// Every participant publishes {tag, mean, M2} as one 16-byte word and reads those of all others until their tags match:
// no fence, no counter, and every reader merges in the same order. The tag is the number of the round, counted by the
// slot over all launches that ever used it, so words need no clearing.
#pragma once

#include "kernels/cuda/collective/slot.hpp"
#include "kernels/cuda/collective/statistics.cuh"
#include "kernels/cuda/collective/wait.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sync_slots.hpp"

namespace convnorm::cuda {

// Takes this CTA's share in numbering the launch, once it has read the header's tag. That can only move on when all
// CTAs have read it, so all of them number their launch alike.
__device__ __forceinline__ uint64_t first_tag_of_launch(SyncHeader* header, uint64_t tag, unsigned ctas, int rounds) {
  // The comparison makes the arrival wait for the value.
  if (tag != ~uint64_t{0} && atomicInc(&header->arrivals, ctas - 1) == ctas - 1) {
    *reinterpret_cast<volatile uint64_t*>(&header->tag) = tag + rounds;
  }
  return tag + 1;
}
__device__ __forceinline__ uint64_t first_tag_of_launch(SyncHeader* header, unsigned ctas, int rounds) {
  return first_tag_of_launch(header, ptx::load_relaxed(&header->tag), ctas, rounds);
}

__device__ __forceinline__ void publish(ptx::Word* word, uint64_t tag, const Spread& s) {
  ptx::store_relaxed(word, {tag, uint64_t{__float_as_uint(s.m2)} << 32 | __float_as_uint(s.mean)});
}

// The word as it was `found` a while ago, or as it becomes.
__device__ __forceinline__ Spread await(const ptx::Word* word, ptx::Word found, uint64_t tag, float count) {
  Patience patience;
  while (found.tag != tag) {
    patience.lose("the statistics of another CTA");
    found = ptx::load_relaxed(word);
  }
  return {count, __uint_as_float(static_cast<uint32_t>(found.payload)),
          __uint_as_float(static_cast<uint32_t>(found.payload >> 32))};
}

__device__ __forceinline__ Spread await(const ptx::Word* word, uint64_t tag, float count) {
  return await(word, ptx::load_relaxed(word), tag, count);
}

// A double of the round `tag`, where fp32 moments would lose too much.
__device__ __forceinline__ void publish(ptx::Word* word, uint64_t tag, double value) {
  ptx::store_relaxed(word, {tag, static_cast<uint64_t>(__double_as_longlong(value))});
}

// Two of them, in neighbouring words.
__device__ __forceinline__ void await_doubles(const ptx::Word* words, uint64_t tag, double& first, double& second) {
  ptx::Word found[2] = {ptx::load_relaxed(words), ptx::load_relaxed(words + 1)};
  Patience patience;
  while (found[0].tag != tag || found[1].tag != tag) {
    patience.lose("the numbers of another CTA");
    found[0] = ptx::load_relaxed(words);
    found[1] = ptx::load_relaxed(words + 1);
  }
  first = __longlong_as_double(static_cast<long long>(found[0].payload));
  second = __longlong_as_double(static_cast<long long>(found[1].payload));
}

// Moments whose mean must not lose digits: {low half of the tag, standard deviation, mean}. The deviation of fp32
// values is in fp32's range, where their M2 and even its root may not be.
__device__ __forceinline__ void publish(ptx::Word* word, uint64_t tag, double mean, double variance) {
  const auto deviation = uint64_t{__float_as_uint(static_cast<float>(sqrt(variance)))};
  ptx::store_relaxed(word, {deviation << 32 | (tag & 0xffffffffu), static_cast<uint64_t>(__double_as_longlong(mean))});
}

// What `word` says of `count` values.
__device__ __forceinline__ Slot moments_of(const ptx::Word& word, double count) {
  const double deviation = __uint_as_float(static_cast<uint32_t>(word.tag >> 32));
  return {count, __longlong_as_double(static_cast<long long>(word.payload)), deviation * deviation * count};
}

__device__ __forceinline__ Slot await_moments(const ptx::Word* word, uint64_t tag, double count) {
  ptx::Word found = ptx::load_relaxed(word);
  Patience patience;
  while (static_cast<uint32_t>(found.tag) != static_cast<uint32_t>(tag)) {
    patience.lose("the moments of another CTA");
    found = ptx::load_relaxed(word);
  }
  return moments_of(found, count);
}

}  // namespace convnorm::cuda
