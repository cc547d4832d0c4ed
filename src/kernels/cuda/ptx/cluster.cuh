// Clusters of CTAs that write into each other's shared memory, and launches that begin before their predecessor ends.
#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/barrier.cuh"

namespace convnorm::cuda::ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// This CTA's shared address, in the CTA of that rank.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t shared_address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address), "r"(rank));
  return mapped;
}

// Says that this thread has come so far. Relaxed: a release would wait for all loads in flight.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Stores into another CTA; when they land, their bytes count towards that CTA's barrier.
__device__ __forceinline__ void store_async(uint32_t mapped, const float (&v)[1], uint32_t mapped_barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(mapped), "f"(v[0]),
               "r"(mapped_barrier)
               : "memory");
}
__device__ __forceinline__ void store_async(uint32_t mapped, const float (&v)[2], uint32_t mapped_barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(mapped),
               "f"(v[0]), "f"(v[1]), "r"(mapped_barrier)
               : "memory");
}
__device__ __forceinline__ void store_async(uint32_t mapped, const float (&v)[4], uint32_t mapped_barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(mapped),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(mapped_barrier)
      : "memory");
}

// As mbarrier_try_wait, for what other CTAs of the cluster have written.
__device__ __forceinline__ bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// The next kernel of the stream, if launched so, may begin once all CTAs have said this.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Returns when the kernels before this one have ended and what they wrote is visible; at once in an ordinary launch.
__device__ __forceinline__ void wait_for_predecessors() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace convnorm::cuda::ptx
