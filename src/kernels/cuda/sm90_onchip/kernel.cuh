// y = post(GroupNorm(pre(conv1d(x, w) + b))) with z in registers from the first product to the store.
//
// Roles: `warpgroups` warpgroups compute 64 channels each; one warp feeds weights; the remaining warps load x. At the
// start of a launch, when x is what everybody waits for, the computing warps load x as well.
#pragma once

#include "kernels/cuda/collective/block_epilogue.cuh"
#include "kernels/cuda/collective/dependent.cuh"
#include "kernels/cuda/collective/row_parameters.cuh"
#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/collective/warp_epilogue.cuh"
#include "kernels/cuda/ptx/load.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90_onchip/traits.cuh"
#include "kernels/cuda/sm90_onchip/x_loader.cuh"

namespace convnorm::cuda::sm90_onchip {

template <class T>
__device__ __forceinline__ int computing_warpgroups(const Config& c) {
  return T::kShared ? c.computing_warpgroups() : c.warpgroups;
}

// By those producers that load no units of their own, each its share, one barrier after the other: the instruction
// takes one address for all lanes of a warp, and a fence goes with each. Others wait for it in await_barriers().
template <class T>
__device__ __forceinline__ void init_barriers(const Parameters& p, uint32_t shared, int producer) {
  const Config& c = p.config;
  if (threadIdx.x % 32 == 0) {
    // In the order of SharedPlan, which lays them out without gaps.
    const int x_full = 2 * c.weight_slots, x_empty = x_full + c.x_slots, turn = x_empty + c.x_slots,
              prepared = turn + 4;
#pragma unroll 1
    for (int i = producer; i <= prepared; i += kInitWarps<T>) {
      const int arrivals = i < x_full     ? 1
                           : i < x_empty  ? p.x_arrivals
                           : i < turn     ? c.warpgroups
                           : i < prepared ? 4
                                          : 32 * T::kLoaderWarps;
      ptx::mbarrier_init(shared + p.plan.weights_full + 8 * i, arrivals);
    }
  }
  ptx::fence_mbarrier_init();
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < computing_warpgroups<T>(c); ++i) {
    ptx::named_barrier_arrive(static_cast<int>(NamedBarrier::kInitialised) + i, 32 * (kInitWarps<T> + 4));
  }
  if constexpr (kInitWarps<T> < T::kProducerWarps) {
    ptx::named_barrier_arrive(static_cast<int>(NamedBarrier::kInitialised) + c.warpgroups + 1,
                              32 * (kInitWarps<T> + 4));
  }
  ptx::named_barrier(static_cast<int>(NamedBarrier::kProducers), 32 * kInitWarps<T>);
}

// Of weights that will be copied later; nobody waits for it.
__device__ __forceinline__ void ask_ahead(const unsigned char* from, const unsigned char* end, int bytes) {
  if (from < end) ptx::prefetch_l2(from, static_cast<uint32_t>(min(static_cast<int64_t>(bytes), end - from)));
}

// Feeds the weight ring, in the order in which the warpgroups take stages.
template <class T>
__device__ __forceinline__ void feed_weights(const Parameters& p, uint32_t shared) {
  const Config& c = p.config;
  const SharedPlan& plan = p.plan;
  const auto taps = static_cast<int>(p.arguments.k);
  const int tap_bytes = c.chunk_k16 * T::kParts * kStepBytes;
  const int64_t block_bytes = int64_t{c.chunks} * taps * tap_bytes;
  const int turns = c.staggered ? c.warpgroups : 1, side_by_side = c.staggered ? 1 : c.warpgroups;
  // Two warpgroups that share a block have every second slot each, as neighbours have: a slot that changed hands could
  // be waited for when its stage before, of the other one, has not come, which looks as if the next one had.
  const int step = T::kShared && c.shared_blocks ? 2 : 1;
  int slot = 0, other_slot = 1;
  uint32_t round = 0, other_round = 0;  // how often the ring has been filled
  int asker = 0;                        // stages until this CTA asks for one again
  for (Walk walk(c); walk.next();) {
    const unsigned char* block = reinterpret_cast<const unsigned char*>(p.arguments.packed + 1) +
                                 (int64_t{walk.row_tile} << c.warpgroups_log2) * block_bytes;
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn, block += block_bytes) {
      const unsigned char* stage = block;
      const bool asks = T::kArranged && c.ahead_bytes > 0 && walk.iteration == 0;
      const unsigned char* const end = block + block_bytes;
      if (asks) asker = (walk.first_sample >> c.samples_log2) % c.askers;
#pragma unroll 1
      for (int chunk = 0; chunk < c.chunks; ++chunk) {
#pragma unroll 1
        for (int tap = 0; tap < taps; tap += c.stage_taps) {
          const int bytes = min(taps - tap, c.stage_taps) * tap_bytes;
#pragma unroll 1
          for (int neighbour = 0; neighbour < side_by_side; ++neighbour) {
            if (round > 0) wait(shared + plan.weights_empty + 8 * slot, (round - 1) & 1, "an empty stage");
            const uint32_t full = shared + plan.weights_full + 8 * slot;
            ptx::mbarrier_arrive_expect_tx(full, bytes);
            ptx::bulk_copy(shared + plan.weights + slot * plan.stage_bytes, stage + neighbour * block_bytes, bytes,
                           full);
            slot += step;
            if (slot >= c.weight_slots) slot -= c.weight_slots, ++round;
            if (asks && asker == 0) {
              ask_ahead(stage + neighbour * block_bytes + c.ahead_bytes, end + neighbour * block_bytes, bytes);
            }
          }
          if (asks) asker = asker == 0 ? c.askers - 1 : asker - 1;
          stage += bytes;
        }
        if (T::kShared && step > 1) {
          const int its_slot = slot;
          const uint32_t its_round = round;
          slot = other_slot, round = other_round;
          other_slot = its_slot, other_round = its_round;
        }
      }
    }
  }
}

// Where x is arranged: the rows of all slots that are zeros in all tiles, by the loader warps. They are published by a
// first fill that has nothing to copy.
template <class T>
__device__ __forceinline__ void clear_other_rows(const Parameters& p, unsigned char* shared, int loader_warp) {
  const Config& c = p.config;
  const int others = c.rows() - c.arranged_rows, eights = c.x_slots * c.slot_eights();
#pragma unroll 1
  for (int eight = loader_warp; eight <= eights; eight += T::kLoaderWarps) {
    unsigned char* const rows = shared + p.plan.x + eight * c.rows() * 16;
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < (eight < eights ? others : c.zeros_behind); i += 32) {
      *reinterpret_cast<uint4*>(rows + 16 * (i < c.arranged_row ? i : i + c.arranged_rows)) = make_uint4(0, 0, 0, 0);
    }
  }
}

// Feeds x from where it has been arranged, by one lane.
template <class T>
__device__ __forceinline__ void feed_arranged(const Parameters& p, uint32_t shared) {
  const Config& c = p.config;
  const int chunk_bytes = c.arranged_chunk_bytes();
  // Eights of channels, or all at once.
  const bool whole = c.arranged_rows == c.rows();
  const int piece_bytes = whole ? chunk_bytes : c.arranged_rows * 16, step = c.rows() * 16;
  const uint32_t first = shared + p.plan.x + (whole ? 0 : c.arranged_row * 16);
  int slot = 0;
  uint32_t round = 0;
  wait_for_predecessor();
  for (Walk walk(c); walk.next();) {
    const int tile = (walk.first_sample >> c.samples_log2) * c.column_tiles + walk.column_tile;
    const unsigned char* from = p.arranged_x + int64_t{tile} * c.chunks * chunk_bytes;
#pragma unroll 1
    for (int chunk = 0; chunk < c.chunks; ++chunk) {
      const uint32_t full = shared + p.plan.x_full + 8 * slot;
      if (round > 0) {
        wait(shared + p.plan.x_empty + 8 * slot, (round - 1) & 1, "an empty slot of x");
        ptx::mbarrier_arrive(full, p.x_arrivals - 1);  // by proxy for all that took part in the first fill
      }
      ptx::mbarrier_arrive_expect_tx(full, chunk_bytes);
      uint32_t to = first + slot * p.plan.x_slot_bytes;
#pragma unroll 1
      for (int done = 0; done < chunk_bytes; done += piece_bytes) {
        ptx::bulk_copy(to, from, piece_bytes, full);
        to += step, from += piece_bytes;
      }
      if (++slot == c.x_slots) slot = 0, ++round;
    }
  }
}

// The products of one k16 step: all pairs of parts whose product counts.
template <class T>
__device__ __forceinline__ void multiply_step(float (&d)[T::kAccumulators], uint32_t a, uint32_t b, uint32_t b_part) {
  using M = ptx::Wgmma<typename T::Operand>;
  constexpr uint32_t kPart = kStepBytes / 16;
  const auto issue = [&](int a_part, int b_parts) {
    M::issue(d, ptx::descriptor(a + a_part * kPart), ptx::descriptor(b + b_parts * b_part));
  };
  issue(0, 0);
  if constexpr (T::kParts >= 2) {
    issue(0, 1);
    issue(1, 0);
  }
  if constexpr (T::kParts == 3) {
    issue(1, 1);
    issue(0, 2);
    issue(2, 0);
  }
}

// Where a warpgroup stands in the rings.
struct Rings {
  int weight_slot = 0;
  uint32_t weight_parity = 0;
  int x_slot = 0;
  uint32_t x_parity = 0;

  __device__ __forceinline__ void advance_weights(const Config& c, int slots, uint32_t parity) {
    weight_slot += slots;
    weight_parity ^= parity;
    if (weight_slot >= c.weight_slots) weight_slot -= c.weight_slots, weight_parity ^= 1;
  }

  // Past what other warpgroups take for their tiles.
  __device__ __forceinline__ void skip_blocks(const Config& c, int blocks) {
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) advance_weights(c, c.block_slots, c.block_parity);
  }

  __device__ __forceinline__ void advance_x(const Config& c, int slots) {
    x_slot += slots;
    if (x_slot >= c.x_slots) x_slot -= c.x_slots, x_parity ^= 1;
  }
};

// z of a tile, the `tile`th of the CTA. A batch is one tap's products with one chunk, all in one straight line: the
// compiler cannot keep the tensor cores busy across a branch without it. While a batch runs, the next two are issued.
template <class T, int kChunkK16>
__device__ __forceinline__ void convolve(const Parameters& p, uint32_t shared, int warpgroup, bool elected, int tile,
                                         Rings& rings, float (&d)[T::kAccumulators]) {
  const Config& c = p.config;
  const SharedPlan& plan = p.plan;
  const auto taps = static_cast<int>(p.arguments.k), stride = static_cast<int>(p.arguments.stride);
  const int rows = c.rows();
  const uint32_t b_part = 2 * kChunkK16 * rows;
  // Its chunks: all, or every second one.
  const int first_chunk = T::kShared && warpgroup >= c.warpgroups ? 1 : 0, step = T::kShared && c.shared_blocks ? 2 : 1;
  int done_slot = 0, done_x_slot = 0;  // of the stage before the present one
  const auto release = [&](bool chunk_done) {
    if (!elected) return;
    ptx::mbarrier_arrive(shared + plan.weights_empty + 8 * done_slot);
    if (chunk_done) ptx::mbarrier_arrive(shared + plan.x_empty + 8 * done_x_slot);
  };

  if (c.staggered && tile > 0) rings.skip_blocks(c, c.warpgroups - 1);
  if (c.staggered && (warpgroup > 0 || tile > 0)) {
    wait(shared + plan.turn + 8 * warpgroup, (warpgroup > 0 ? tile : tile - 1) & 1, "its turn");
  }
#pragma unroll 1
  for (int chunk = first_chunk; chunk < c.chunks; chunk += step) {
    wait(shared + plan.x_full + 8 * rings.x_slot, rings.x_parity, "x");
    // By who reads: where copies are on their way, writers would wait for them.
    if (XLoader<T>::kRaw && p.raw_fill) ptx::fence_proxy_async();
    const uint32_t x_low = ptx::descriptor_low(shared + plan.x + rings.x_slot * plan.x_slot_bytes, rows * 16);
    uint32_t shift = XLoader<T>::kRaw ? c.first_shift : 0;
    int phase = XLoader<T>::kRaw ? c.first_phase : 0, tap = 0;
#pragma unroll 1
    do {
      wait(shared + plan.weights_full + 8 * rings.weight_slot, rings.weight_parity, "weights");
      const int first_tap = tap, end = min(tap + c.stage_taps, taps);
      // Every warp passes the turn on: if one did for all, the turn could come round again, its barrier two phases on,
      // before a slow warp has seen its own.
      if (c.staggered && chunk == c.turn_chunk && end == taps && threadIdx.x % 32 == 0) {
        ptx::mbarrier_arrive(shared + plan.turn + 8 * (warpgroup + 1 == c.warpgroups ? 0 : warpgroup + 1));
      }
      uint32_t a = ptx::descriptor_low(shared + plan.weights + rings.weight_slot * plan.stage_bytes, kStepBytes / 2);
#pragma unroll 1
      do {
        const uint32_t b = x_low + shift + phase * c.phase_rows;
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < kChunkK16; ++k16) {
          multiply_step<T>(d, a + k16 * (T::kParts * kStepBytes / 16), b + k16 * 2 * rows, b_part);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<2>();
        // The stage before is done when the second batch of this one has been issued.
        if (tap == first_tap + 1 && (chunk > first_chunk || first_tap > 0)) release(first_tap == 0);
        a += kChunkK16 * (T::kParts * kStepBytes / 16);
        shift += c.tap_shift;
        phase += c.tap_phase;
        if (phase >= stride) phase -= stride, shift += c.samples;
      } while (++tap < end);
      if (end == first_tap + 1 && (chunk > first_chunk || first_tap > 0)) {  // before another stage is waited for
        ptx::wgmma_wait<1>();
        release(first_tap == 0);
      }
      done_slot = rings.weight_slot, done_x_slot = rings.x_slot;
      rings.advance_weights(c, c.stage_step, 0);
    } while (tap < taps);
    rings.advance_x(c, step);
  }
  ptx::wgmma_wait<0>();
  release(true);
}

// The sums of a block's first warpgroup and those of the second, which gives its own through shared memory.
template <class T>
__device__ __forceinline__ void add_up(const Parameters& p, unsigned char* shared, bool first,
                                       float (&d)[T::kAccumulators]) {
  float4* const sums = reinterpret_cast<float4*>(shared + p.plan.sums) + threadIdx.x % 128;
  constexpr int kGiven = static_cast<int>(NamedBarrier::kSumsGiven);
  if (first) {
    ptx::named_barrier(kGiven, 256);
#pragma unroll
    for (int i = 0; i < T::kAccumulators / 4; ++i) {
      const float4 its = sums[i * 128];
      d[4 * i] += its.x, d[4 * i + 1] += its.y, d[4 * i + 2] += its.z, d[4 * i + 3] += its.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < T::kAccumulators / 4; ++i) {
      sums[i * 128] = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }
    ptx::named_barrier_arrive(kGiven, 256);
  }
}

// Has ready, by the loader warps that initialised barriers, those from `first_warp` on, what the computing ones need
// when their first products are done.
template <class T>
__device__ __forceinline__ void prepare(const typename T::Parameters& p, unsigned char* shared, int loader_warp,
                                        int first_warp = 0) {
  constexpr int kWarps = kInitWarps<T> - 1;
  const Config& c = p.config;
  const int lane = threadIdx.x % 32;
  if (c.exchanges() && loader_warp == kWarps - 1 && lane == 0) {
    *reinterpret_cast<uint64_t*>(shared + p.plan.first_tag) =
        first_tag_of_launch(p.slot.header, c.ctas(), c.iterations);
  }
  Walk walk(c);
  if (T::kRowParameters && loader_warp >= first_warp && walk.next()) {
    const int rows = kBlockRows << c.warpgroups_log2;
    load_row_parameters<T>(p, shared, walk.row_tile * rows, 0, rows, 32 * (loader_warp - first_warp) + lane,
                           32 * (kWarps - first_warp));
  }
  ptx::mbarrier_arrive(ptx::shared_address(shared) + p.plan.prepared);
}

// The first x where some loader warps have units of their own: where computing ones have some, too, they run the same
// code, so that a launch fetches it once. What the computing ones need at the end of their tiles is computed by loader
// warps: a launch of few tiles waits for code more than for anything else, and they have the time.
template <class T>
__device__ __forceinline__ void fill_together(const typename T::Parameters& p, unsigned char* shared, int warp,
                                              int producer) {
  const Config& c = p.config;
  const int loader = producer - 1;
  XLoader<T> x(p, shared);
  const bool has_own = XLoader<T>::has_own(loader) && producer != 0;
  if (has_own && p.plain_fill) x.ask_for_own(warp, loader);
  if (producer >= 0 && !has_own) init_barriers<T>(p, ptx::shared_address(shared), producer);
  if (producer == 0) return;
  if (!p.plain_fill) {
    x.first_fill(warp, loader);
  } else if (has_own) {
    x.fill_own(warp, loader);
  } else if (producer > 0) {
    x.fill_halo(loader);
  } else {
    await_barriers<T>(warp);
  }
  if (producer < 0) return;
  if (!has_own) return prepare<T>(p, shared, loader);
  Walk walk(c);
  if (walk.next()) {
#pragma unroll 1
    for (int i = 0; i < c.warpgroups; ++i) {
      typename T::TileEpilogue(p, shared, 4 * i + loader - T::kHaloWarps).begin(walk, false);
    }
  }
  ptx::mbarrier_arrive(ptx::shared_address(shared) + p.plan.prepared);
}

template <class T>
__global__ void __launch_bounds__(T::kMostThreads, T::kPerSm) onchip(const __grid_constant__ typename T::Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Config& c = p.config;
  const uint32_t shared_base = ptx::shared_address(shared);
  // The shuffle tells the compiler that the warp's number, and so every descriptor, is the same in all lanes.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0), lane = threadIdx.x % 32;
  const int producer = warp - 4 * computing_warpgroups<T>(c);  // 0: weights; above: x; below: computes

  const int warpgroup = warp / 4;
  constexpr bool kTogether = T::kFillsTogether;
  if constexpr (kTogether) fill_together<T>(p, shared, warp, producer);
  if (producer >= 0) {
    if constexpr (!kTogether) {
      // Computing warps wait for the registers; only loads of other rows than plain ones need them first.
      if constexpr (T::kWide) {
        if (p.plain_fill) ptx::setmaxnreg_dec<T::kProducerRegisters>();
      }
      init_barriers<T>(p, shared_base, producer);
      if (producer > 0) {
        XLoader<T> x(p, shared);
        const int loader = producer - 1;
        if (T::kArranged && p.arranged) clear_other_rows<T>(p, shared, loader);
        if (!p.plain_fill) {
          x.first_fill(warp, loader);
        } else if (x.has_own(loader)) {
          x.ask_for_own(warp, loader);
          x.fill_own(warp, loader);
        } else {
          x.fill_halo(loader);
        }
      }
      if constexpr (T::kWide) {
        if (!p.plain_fill) ptx::setmaxnreg_dec<T::kProducerRegisters>();
      }
    }
    if (producer == 0) {
      if (lane == 0) feed_weights<T>(p, shared_base);
    } else {
      const bool arranged = T::kArranged && p.arranged;
      if constexpr (!kTogether) prepare<T>(p, shared, producer - 1, arranged ? 1 : 0);  // the first one feeds x
      if (!arranged) {
        XLoader<T>(p, shared).refill(producer - 1);
      } else if (producer == 1 && lane == 0) {
        feed_arranged<T>(p, shared_base);
      }
    }
  } else {
    XLoader<T> x(p, shared);
    if constexpr (!kTogether) {
      if (p.plain_fill && x.has_own(-1)) x.ask_for_own(warp, -1);
    }
    // A block's second warpgroup multiplies, and does no more.
    const bool helps = T::kShared && warpgroup >= c.warpgroups;
    typename T::TileEpilogue epilogue(p, shared, warp);
    Rings rings;
    if (helps) rings.x_slot = 1;
    if (c.staggered) {
      rings.skip_blocks(c, warpgroup);
    } else {
      rings.weight_slot = warpgroup;
    }
    Walk walk(c);
    bool any = walk.next();
    if constexpr (kTogether) {
      if (any) epilogue.place(walk);
    } else {
      if (any && !helps) epilogue.begin(walk, false);
      if (!p.plain_fill) {
        x.first_fill(warp, -1);
      } else if (x.has_own(-1)) {
        x.fill_own(warp, -1);
      } else {
        await_barriers<T>(warp);
      }
    }
    if constexpr (T::kWide) ptx::setmaxnreg_inc<T::kConsumerRegisters>();
    for (int tile = 0; any; ++tile) {
      float d[T::kAccumulators] = {};
      const auto convolve_chunks = [&]<int kChunkK16>() {
        convolve<T, kChunkK16>(p, shared_base, warpgroup, threadIdx.x % 128 == 0, tile, rings, d);
      };
      constexpr int kMostK16 = kMostStepParts / T::kParts;
      if (kMostK16 >= 4 && c.chunk_k16 == 4) {
        convolve_chunks.template operator()<kMostK16 >= 4 ? 4 : 1>();
      } else if (kMostK16 >= 2 && c.chunk_k16 == 2) {
        convolve_chunks.template operator()<kMostK16 >= 2 ? 2 : 1>();
      } else {
        convolve_chunks.template operator()<1>();
      }
      if (tile == 0) wait(shared_base + p.plan.prepared, 0, "the launch's number");
      if constexpr (T::kShared) {
        if (c.shared_blocks) add_up<T>(p, shared, !helps, d);
      }
      if (!helps) epilogue.run(walk, d);
      any = walk.next();
      if (any && !helps) epilogue.begin(walk, true);
    }
  }
}

}  // namespace convnorm::cuda::sm90_onchip
