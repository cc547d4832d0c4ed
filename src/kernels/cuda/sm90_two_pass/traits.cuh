// The instances of the first and of a recomputing second pass: sm90_onchip's tiles with an epilogue of their own.
#pragma once

#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/sm90_onchip/traits.cuh"
#include "kernels/cuda/sm90_two_pass/launch.hpp"

namespace convnorm::cuda::sm90_two_pass {

enum class Pass : int {
  kMeasure,  // the first: moments of the tile's rows, and z where it is kept
  kFinish,   // the second, recomputing: y
};

// What a launch receives.
struct Parameters : sm90_onchip::Parameters {
  float* z;  // (N, C_out, pitch); null: not kept
  int64_t pitch;
  GroupPieces pieces;
  const any_arch::Norm* norms;  // (N, G)
};

template <class T>
class Epilogue;

template <class Element, int kParts, Width kWidthT, Pass kPassT>
struct Traits : sm90_onchip::Traits<Element, kParts, 128, false, false> {
  static constexpr Pass kPass = kPassT;
  static constexpr bool kRowParameters = false, kFours = true;
  using Parameters = sm90_two_pass::Parameters;
  using TileEpilogue = Epilogue<Traits>;
};

template <class Element, int kParts, Pass kPassT>
struct Traits<Element, kParts, Width::kPair, kPassT> : sm90_onchip::Traits<Element, kParts, 128, false, false> {
  static constexpr Pass kPass = kPassT;
  static constexpr int kMostWarpgroups = 1, kProducerWarps = 4, kLoaderWarps = kProducerWarps - 1, kPerSm = 2;
  static constexpr int kMostThreads = 128 * kMostWarpgroups + 32 * kProducerWarps;
  static constexpr bool kRowParameters = false, kFours = true;
  using Parameters = sm90_two_pass::Parameters;
  using TileEpilogue = Epilogue<Traits>;
};

}  // namespace convnorm::cuda::sm90_two_pass
