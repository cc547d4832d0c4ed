// Launches the instances of one element type, number of parts and number of taps; each file of instances/ compiles one.
#pragma once

#include "kernels/cuda/sm90_stream/kernel.cuh"
#include "kernels/cuda/sm90_stream/launch.cuh"

namespace convnorm::cuda::sm90_stream {

template <class T>
void launch_traits(const Parameters& p, LaunchShape shape, cudaStream_t stream) {
  shape.shared_bytes += kWarps * T::kRingBytes;
  // Where inputs are shifted, products wait for shared memory anyway: one order serves both.
  constexpr bool kOneOrder = !T::kShiftsSums;
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
