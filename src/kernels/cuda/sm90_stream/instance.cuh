// Launches the instances of one element type, number of parts and number of taps; each file of instances/ compiles one.
#pragma once

#include <type_traits>

#include "kernels/cuda/sm90_stream/kernel.cuh"
#include "kernels/cuda/sm90_stream/launch.cuh"

namespace convnorm::cuda::sm90_stream {

template <class T>
void launch_traits(const Parameters& p, LaunchShape shape, cudaStream_t stream);

// The instance for exactly this many stages, if there is one.
template <class T, int... kStages>
bool launch_stages(const Parameters& p, const LaunchShape& shape, cudaStream_t stream) {
  const auto launch_one = [&](auto stages) {
    constexpr int kOne = decltype(stages)::value;
    if constexpr (has_instance_of(kOne, T::kParts, T::kTiles8)) {
      if (p.front.blocks_per_warp != kOne) return false;
      launch_traits<typename T::template WithStages<kOne>>(p, shape, stream);
      return true;
    }
    return false;
  };
  return (launch_one(std::integral_constant<int, kStages>()) || ...);
}

template <class T>
void launch_traits(const Parameters& p, LaunchShape shape, cudaStream_t stream) {
  if constexpr (T::kStageTaps == 5 && T::kStages == 0) {
    const Front& f = p.front;
    const bool whole = f.c == f.blocks * kBlockInputs && f.blocks == f.blocks_per_warp * kWarps << f.k_slices_log2;
    if (whole && p.tail.straight && launch_stages<T, 2, 4, 8, 16>(p, shape, stream)) return;
  }
  shape.shared_bytes += kWarps * T::kRingBytes;
  // One order serves both where inputs are shifted, as products wait for shared memory anyway, and where there is so
  // little weight that its latency is all that counts.
  constexpr bool kOneOrder = !T::kShiftsSums || (T::kParts == 1 && T::kStages == 2);
  const bool weights_first = kOneOrder || shape.programmatic;
  launch("launching sm90_stream", weights_first ? stream_kernel<T, true> : stream_kernel<T, kOneOrder>, shape, stream,
         p);
}

template <class Element, int kParts, int kTaps>
void launch_instance(int tiles8, const Parameters& p, LaunchShape shape, cudaStream_t stream) {
  switch (tiles8) {
    case 1:
      return launch_traits<Traits<Element, kParts, kTaps, 1>>(p, shape, stream);
    case 2:
      return launch_traits<Traits<Element, kParts, kTaps, 2>>(p, shape, stream);
    case 4:
      return launch_traits<Traits<Element, kParts, kTaps, 4>>(p, shape, stream);
    default:
      if constexpr (kParts < 3) {
        return tiles8 == 8 ? launch_traits<Traits<Element, kParts, kTaps, 8>>(p, shape, stream)
                           : launch_traits<Traits<Element, kParts, kTaps, 16>>(p, shape, stream);
      }
  }
}

}  // namespace convnorm::cuda::sm90_stream
