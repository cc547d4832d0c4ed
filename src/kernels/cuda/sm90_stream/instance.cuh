// Launches the instances of one element type and number of taps; each file of instances/ compiles one.
#pragma once

#include "kernels/cuda/sm90_stream/kernel.cuh"
#include "kernels/cuda/sm90_stream/launch.cuh"

namespace convnorm::cuda::sm90_stream {

template <class T>
void launch_traits(const Parameters& p, LaunchShape shape, cudaStream_t stream) {
  shape.shared_bytes += kWarps * T::kRingBytes;
  launch("launching sm90_stream", stream_kernel<T>, shape, stream, p);
}

template <class Element, int kTaps>
void launch_instance(int tiles8, const Parameters& p, LaunchShape shape, cudaStream_t stream) {
  switch (tiles8) {
    case 1:
      return launch_traits<Traits<Element, kTaps, 1>>(p, shape, stream);
    case 2:
      return launch_traits<Traits<Element, kTaps, 2>>(p, shape, stream);
    case 4:
      return launch_traits<Traits<Element, kTaps, 4>>(p, shape, stream);
    case 8:
      return launch_traits<Traits<Element, kTaps, 8>>(p, shape, stream);
    default:
      return launch_traits<Traits<Element, kTaps, 16>>(p, shape, stream);
  }
}

}  // namespace convnorm::cuda::sm90_stream
