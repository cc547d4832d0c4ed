// y = post(GroupNorm(conv1d(x, w) + b)) for y larger than the chip, a domain of which is not: z stays in registers from
// the first product to the store, and domains are computed in turn.
//
// Roles: three warpgroups take tiles in turn, and turns at the tensor cores: while one multiplies, the two before it
// exchange statistics, normalise and store. Four warps load x. The thread that gives a stage of weights back asks for
// the next one to take its place.
#pragma once

#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90_in_turn/epilogue.cuh"
#include "kernels/cuda/sm90_onchip/x_loader.cuh"

namespace convnorm::cuda::sm90_in_turn {

template <class T>
__device__ __forceinline__ void init_barriers(const Parameters& p, uint32_t shared, int warp, int tiles) {
  const Config& c = p.config;
  if (threadIdx.x % 32 == 0) {
    // In the order of SharedPlan, which lays them out without gaps.
    const int x_full = c.weight_slots, x_empty = x_full + c.x_slots, turn = x_empty + c.x_slots,
              measured = turn + kTurns, known = measured + kDomainPlaces, prepared = known + kDomainPlaces;
#pragma unroll 1
    for (int i = warp; i <= prepared; i += T::kThreads / 32) {
      const int arrivals = i < x_full     ? 1
                           : i < x_empty  ? p.x_arrivals
                           : i < turn     ? 1
                           : i < measured ? 4
                           : i < known    ? 4 * tiles
                           : i < prepared ? 4
                                          : 1;
      ptx::mbarrier_init(shared + p.plan.weights_full + 8 * i, arrivals);
    }
  }
  ptx::fence_mbarrier_init();
}

// A place in a ring of slots.
struct RingPlace {
  int slot;
  uint32_t parity;

  // That of the CTA's `number`th stage or chunk.
  __device__ __forceinline__ RingPlace(const Divisor& slots, int number) {
    const uint32_t round = slots.divide(number);
    slot = number - static_cast<int>(round * slots.value);
    parity = round & 1;
  }

  __device__ __forceinline__ void advance(int slots) {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
};

// Where stages of weights come from: those of this tile, and of the CTA's next one, null without one.
struct WeightSource {
  const unsigned char* here;
  const unsigned char* next;
};

template <class T>
__device__ __forceinline__ const unsigned char* weights_of(const Parameters& p, const TurnWalk& walk) {
  const int64_t block = int64_t{p.config.stages_per_block()} * p.plan.block_bytes;
  return static_cast<const unsigned char*>(p.arguments.packed_weight()) + int64_t{walk.row_tile} * kBlocks * block;
}

// Stage `stage` of a tile, or behind its last one of the next tile, into a slot, by one thread.
__device__ __forceinline__ void ask_for_weights(const Parameters& p, uint32_t shared, const WeightSource& source,
                                                int stage, int slot) {
  const int stages = p.config.stages_per_block();
  const unsigned char* from = source.here;
  if (stage >= stages) stage -= stages, from = source.next;
  if (from == nullptr) return;
  const int64_t block = int64_t{stages} * p.plan.block_bytes;
  const uint32_t full = shared + p.plan.weights_full + 8 * slot,
                 to = shared + p.plan.weights + slot * p.plan.stage_bytes;
  from += int64_t{stage} * p.plan.block_bytes;
  ptx::mbarrier_arrive_expect_tx(full, p.plan.stage_bytes);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
    ptx::bulk_copy(to + b * p.plan.block_bytes, from + b * block, p.plan.block_bytes, full);
}

// The products of one k16 step: all pairs of parts whose product counts.
template <class T>
__device__ __forceinline__ void multiply_step(float (&d)[T::kAccumulators], uint32_t a, uint32_t b, uint32_t b_part) {
  using M = ptx::Wgmma<typename T::Operand>;
  constexpr uint32_t kPart = sm90_onchip::kStepBytes / 16;
  M::issue(d, ptx::descriptor(a), ptx::descriptor(b));
  if constexpr (T::kParts == 2) {
    M::issue(d, ptx::descriptor(a), ptx::descriptor(b + b_part));
    M::issue(d, ptx::descriptor(a + kPart), ptx::descriptor(b));
  }
}

// z of a tile. A batch is the products of kTaps taps with one chunk, in one straight line. While one runs, the next two
// are issued.
template <class T, int kChunkK16, int kTaps>
__device__ __forceinline__ void convolve(const Parameters& p, uint32_t shared, int warpgroup, int tile,
                                         float (&d)[kBlocks][T::kAccumulators]) {
  const Config& c = p.config;
  const SharedPlan& plan = p.plan;
  TurnWalk walk(c, tile);
  WeightSource source = {weights_of<T>(p, walk), nullptr};
  if (walk.next()) source.next = weights_of<T>(p, walk);
  RingPlace weights(c.weight_ring, c.resident ? 0 : tile * c.stages_per_block()), x(c.x_ring, tile * c.chunks);
  const bool elected = threadIdx.x % 128 == 0;
  const int rows = c.rows();
  const uint32_t b_part = 2 * kChunkK16 * rows, a_block = plan.block_bytes / 16;
  constexpr uint32_t kTapUnits = kChunkK16 * T::kParts * sm90_onchip::kStepBytes / 16;
  int stage = 0, done_slot = 0, done_x_slot = 0;  // of the stage before the present one
  const auto release = [&](bool chunk_done) {
    if (!elected) return;
    if (!c.resident) ask_for_weights(p, shared, source, stage - 1 + c.weight_slots, done_slot);
    if (chunk_done) ptx::mbarrier_arrive(shared + plan.x_empty + 8 * done_x_slot);
  };
#pragma unroll 1
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    wait(shared + plan.x_full + 8 * x.slot, x.parity, "x");
    // By who reads: where copies are on their way, writers would wait for them.
    if (p.raw_fill) ptx::fence_proxy_async();
    const uint32_t x_low = ptx::descriptor_low(shared + plan.x + x.slot * plan.x_slot_bytes, rows * 16);
#pragma unroll 1
    for (int group = 0; group < c.tap_groups; ++group) {
      wait(shared + plan.weights_full + 8 * weights.slot, weights.parity, "weights");
      // What the next warpgroup waits for later than what this one has waited for is at most one round of a ring ahead.
      // Every warp passes the turn on: if one did for all, the turn could come round again before a slow warp has seen
      // its own.
      if (chunk + 1 == c.chunks && group + 1 == c.tap_groups && threadIdx.x % 32 == 0) {
        ptx::mbarrier_arrive(shared + plan.turn + 8 * (warpgroup + 1 == kTurns ? 0 : warpgroup + 1));
      }
      uint32_t a =
          ptx::descriptor_low(shared + plan.weights + weights.slot * plan.stage_bytes, sm90_onchip::kStepBytes / 2);
      const int first_tap = group * c.stage_taps, end = first_tap + c.stage_taps;
#pragma unroll 1
      for (int tap = first_tap; tap < end; tap += kTaps) {
        ptx::wgmma_fence();
#pragma unroll
        for (int u = 0; u < kTaps; ++u) {
          const uint32_t b = x_low + p.tap_rows[tap + u];
#pragma unroll
          for (int k16 = 0; k16 < kChunkK16; ++k16) {
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
              multiply_step<T>(d[block], a + u * kTapUnits + k16 * (kTapUnits / kChunkK16) + block * a_block,
                               b + k16 * 2 * rows, b_part);
            }
          }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<2>();
        // The stage before is done when the second batch of this one has been issued.
        if (tap == first_tap + kTaps && stage > 0) release(group == 0);
        a += kTaps * kTapUnits;
      }
      if (end == first_tap + kTaps && stage > 0) {  // before another stage is waited for
        ptx::wgmma_wait<1>();
        release(group == 0);
      }
      ++stage;
      done_slot = weights.slot, done_x_slot = x.slot;
      weights.advance(c.weight_slots);
    }
    x.advance(c.x_slots);
  }
  ptx::wgmma_wait<0>();
  release(true);
}

template <class T>
__device__ __forceinline__ void compute(const Parameters& p, unsigned char* shared, int warp) {
  const Config& c = p.config;
  const SharedPlan& plan = p.plan;
  const uint32_t base = ptx::shared_address(shared);
  const int warpgroup = warp / 4, lane = threadIdx.x % 32;
  // By those that wait longest for their turn.
  if (warpgroup == 1 && threadIdx.x % 128 == 0) {
    const WeightSource source = {weights_of<T>(p, TurnWalk(c, 0)), nullptr};
#pragma unroll 1
    for (int stage = 0; stage < c.weight_slots; ++stage) ask_for_weights(p, base, source, stage, stage);
  }
  if (warp == 4 * kTurns - 1 && lane == 0) {
    if (c.members > 1) {
      *reinterpret_cast<uint64_t*>(shared + plan.first_tag) =
          first_tag_of_launch(p.slot.header, c.ctas(), c.iterations);
    }
    ptx::mbarrier_arrive(base + plan.prepared);
  }
#pragma unroll 1
  for (int tile = warpgroup; TurnWalk(c).go_to(tile); tile += kTurns) {
    const auto walk_anew = [&] {
      int number = tile;
      asm volatile("" : "+r"(number));
      return TurnWalk(c, number);
    };
    const auto epilogue_of = [&](const TurnWalk& walk, int block) {
      TurnEpilogue<T> epilogue(p, shared, warpgroup, block, warp % 4);
      epilogue.place(walk);
      return epilogue;
    };
    if (tile < kTurns || c.row_domains.value > 1) {
      const TurnWalk walk = walk_anew();
#pragma unroll 1
      for (int block = 0; block < kBlocks; ++block) epilogue_of(walk, block).load_parameters();
    }
    // Of warpgroup 0 the first turn is its own.
    if (tile > 0) wait(base + plan.turn + 8 * warpgroup, (tile - 1) / kTurns & 1, "its turn");
    float d[kBlocks][T::kAccumulators] = {};
    const auto convolve_by = [&]<int kChunkK16, int kTaps>() {
      convolve<T, kChunkK16, kTaps>(p, base, warpgroup, tile, d);
    };
    if constexpr (T::kParts == 1) {
      if (c.chunk_k16 == 4) {
        convolve_by.template operator()<4, 1>();
      } else if (c.chunk_k16 == 2) {
        c.stage_taps % 2 == 0 ? convolve_by.template operator()<2, 2>() : convolve_by.template operator()<2, 1>();
      } else {
        c.stage_taps % 4 == 0 ? convolve_by.template operator()<1, 4>() : convolve_by.template operator()<1, 1>();
      }
    } else {
      c.chunk_k16 == 2 ? convolve_by.template operator()<2, 1>() : convolve_by.template operator()<1, 1>();
    }
    if (tile < kTurns) wait(base + plan.prepared, 0, "the launch's number");
    const auto barrier_of = [&](const TurnWalk& walk, int first) {
      return base + first + 8 * static_cast<int>(walk.round() % kDomainPlaces);
    };
    const auto parity_of = [&](const TurnWalk& walk) { return walk.round() / kDomainPlaces & 1; };
    {
      const TurnWalk walk = walk_anew();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const TurnEpilogue<T> epilogue = epilogue_of(walk, block);
        if (p.arguments.pre != CONVNORM_NONE) epilogue.apply_pre(d[block]);
        epilogue.measure(walk, d[block]);
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(barrier_of(walk, plan.measured));
    }
    {
      const TurnWalk walk = walk_anew();
      if (walk.is_last()) {
        wait(barrier_of(walk, plan.measured), parity_of(walk), "a domain's other tiles");
        epilogue_of(walk, 0).exchange(walk, warp % 4);
        if (lane == 0) ptx::mbarrier_arrive(barrier_of(walk, plan.known));
      }
      wait(barrier_of(walk, plan.known), parity_of(walk), "a domain's moments");
    }
    {
      const TurnWalk walk = walk_anew();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) epilogue_of(walk, block).take_moments(walk);
    }
    // One block after the other; the second one then takes the place of the first, so that the code exists once: what a
    // warp executes for the first time takes long.
#pragma unroll 1
    for (int block = 0; block < kBlocks; ++block) {
      const TurnWalk walk = walk_anew();
      epilogue_of(walk, block).finish(walk, d[0]);
#pragma unroll
      for (int i = 0; i < T::kAccumulators; ++i) d[0][i] = d[1][i];
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, 1) in_turn(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  // The shuffle tells the compiler that the warp's number, and so every descriptor, is the same in all lanes.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  init_barriers<T>(p, ptx::shared_address(shared), warp, held_tiles(p.config));
  __syncthreads();
  if (warp >= 4 * kTurns) {
    ptx::setmaxnreg_dec<T::kProducerRegisters>();
    sm90_onchip::XLoader<T>(p, shared).fill(warp - 4 * kTurns);
  } else {
    ptx::setmaxnreg_inc<T::kConsumerRegisters>();
    compute<T>(p, shared, warp);
  }
}

}  // namespace convnorm::cuda::sm90_in_turn
