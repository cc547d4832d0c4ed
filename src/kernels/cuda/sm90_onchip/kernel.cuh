// y = post(GroupNorm(pre(conv1d(x, w) + b))) with z in registers from the first product to the store.
//
// Roles: `warpgroups` warpgroups compute 64 channels each; one warp feeds weights; the remaining warps load x. At the
// start of a launch, when x is what everybody waits for, the computing warps load x as well.
#pragma once

#include "kernels/cuda/collective/block_epilogue.cuh"
#include "kernels/cuda/collective/row_parameters.cuh"
#include "kernels/cuda/collective/walk.cuh"
#include "kernels/cuda/collective/warp_epilogue.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90_onchip/traits.cuh"
#include "kernels/cuda/sm90_onchip/x_loader.cuh"

namespace convnorm::cuda::sm90_onchip {

// By all producer warps, each its share, one barrier after the other: the instruction takes one address for all lanes
// of a warp, and a fence goes with each. Computing warps wait for it in await_barriers().
template <class T>
__device__ __forceinline__ void init_barriers(const Parameters& p, uint32_t shared, int producer) {
  const Config& c = p.config;
  if (threadIdx.x % 32 == 0) {
    // In the order of SharedPlan, which lays them out without gaps.
    const int x_full = 2 * c.weight_slots, x_empty = x_full + c.x_slots, turn = x_empty + c.x_slots,
              prepared = turn + 4;
#pragma unroll 1
    for (int i = producer; i <= prepared; i += T::kProducerWarps) {
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
  for (int i = 0; i < c.warpgroups; ++i) {
    ptx::named_barrier_arrive(static_cast<int>(NamedBarrier::kInitialised) + i, 32 * (T::kProducerWarps + 4));
  }
  ptx::named_barrier(static_cast<int>(NamedBarrier::kProducers), 32 * T::kProducerWarps);
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
  int slot = 0;
  uint32_t round = 0;  // how often the ring has been filled
  for (Walk walk(c); walk.next();) {
    const unsigned char* block = reinterpret_cast<const unsigned char*>(p.arguments.packed + 1) +
                                 (int64_t{walk.row_tile} << c.warpgroups_log2) * block_bytes;
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn, block += block_bytes) {
      const unsigned char* stage = block;
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
            if (++slot == c.weight_slots) slot = 0, ++round;
          }
          stage += bytes;
        }
      }
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

  __device__ __forceinline__ void advance_x(const Config& c) {
    if (++x_slot == c.x_slots) x_slot = 0, x_parity ^= 1;
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
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    wait(shared + plan.x_full + 8 * rings.x_slot, rings.x_parity, "x");
    const uint32_t x_low = ptx::descriptor_low(shared + plan.x + rings.x_slot * plan.x_slot_bytes, rows * 16);
    uint32_t shift = 0;
    int phase = 0, tap = 0;
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
        if (tap == first_tap + 1 && (chunk > 0 || first_tap > 0)) release(first_tap == 0);
        a += kChunkK16 * (T::kParts * kStepBytes / 16);
        shift += c.tap_shift;
        phase += c.tap_phase;
        if (phase >= stride) phase -= stride, shift += c.samples;
      } while (++tap < end);
      if (end == first_tap + 1 && (chunk > 0 || first_tap > 0)) {  // before another stage is waited for
        ptx::wgmma_wait<1>();
        release(first_tap == 0);
      }
      done_slot = rings.weight_slot, done_x_slot = rings.x_slot;
      rings.advance_weights(c, c.stage_step, 0);
    } while (tap < taps);
    rings.advance_x(c);
  }
  ptx::wgmma_wait<0>();
  release(true);
}

// Has ready, by the loader warps, what the computing ones need when their first products are done.
template <class T>
__device__ __forceinline__ void prepare(const typename T::Parameters& p, unsigned char* shared, int loader_warp) {
  const Config& c = p.config;
  const int lane = threadIdx.x % 32;
  if (c.exchanges() && loader_warp == T::kHaloWarps - 1 && lane == 0) {
    *reinterpret_cast<uint64_t*>(shared + p.plan.first_tag) =
        first_tag_of_launch(p.slot.header, c.ctas(), c.iterations);
  }
  Walk walk(c);
  if (T::kRowParameters && walk.next()) {
    const int rows = kBlockRows << c.warpgroups_log2;
    load_row_parameters<T>(p, shared, walk.row_tile * rows, 0, rows, 32 * loader_warp + lane, 32 * T::kLoaderWarps);
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
  const int producer = warp - 4 * c.warpgroups;  // 0: weights; above: x; below: computes

  const int warpgroup = warp / 4;
  if (producer >= 0) {
    // Computing warps wait for the registers; only loads of other rows than plain ones need them first.
    if constexpr (T::kWide) {
      if (p.plain_fill) ptx::setmaxnreg_dec<T::kProducerRegisters>();
    }
    init_barriers<T>(p, shared_base, producer);
    if (producer > 0) {
      XLoader<T> x(p, shared);
      const int loader = producer - 1;
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
    if (producer == 0) {
      if (lane == 0) feed_weights<T>(p, shared_base);
    } else {
      prepare<T>(p, shared, producer - 1);
      XLoader<T>(p, shared).refill(producer - 1);
    }
  } else {
    XLoader<T> x(p, shared);
    if (p.plain_fill) x.ask_for_own(warp, -1);
    typename T::TileEpilogue epilogue(p, shared, warp);
    Rings rings;
    if (c.staggered) {
      rings.skip_blocks(c, warpgroup);
    } else {
      rings.weight_slot = warpgroup;
    }
    Walk walk(c);
    bool any = walk.next();
    if (any) epilogue.begin(walk, false);
    if (p.plain_fill) {
      x.fill_own(warp, -1);
    } else {
      x.first_fill(warp, -1);
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
      epilogue.run(walk, d);
      any = walk.next();
      if (any) epilogue.begin(walk, true);
    }
  }
}

}  // namespace convnorm::cuda::sm90_onchip
