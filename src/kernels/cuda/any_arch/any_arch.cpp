#include "kernels/cuda/any_arch/any_arch.hpp"

#include <algorithm>
#include <string>

#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/executable.hpp"
#include "kernels/cuda/planning.hpp"

namespace convnorm::cuda {

namespace {

using namespace any_arch;

constexpr int64_t kAlignment = 256;

// Cuts aligned pieces from the workspace; without one it only counts.
class Pieces {
 public:
  explicit Pieces(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    char* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

template <class T>
int64_t tiles_of(const Problem& p, const Sizes& sizes) {
  return p.n * p.conv_groups * tiles_along(sizes.o_per_conv_group, T::kChannels) *
         tiles_along(sizes.l_out, T::kPositions);
}

TileKind choose_tile(const Problem& p, const Sizes& sizes, const DeviceLimits& device) {
  // Below that, most of a tile's rows would be empty.
  constexpr int64_t kFewestChannels = 8;
  if (sizes.o_per_conv_group < kFewestChannels) return TileKind::row;
  const bool rows_fill_tiles = 2 * sizes.l_out >= tiles_along(sizes.l_out, Wide::kPositions) * Wide::kPositions;
  // Few products leave a large tile waiting for its own loads and stores.
  constexpr int64_t kFewestProducts = 64;
  if (rows_fill_tiles && sizes.o_per_conv_group > Wide::kChannels && sizes.c_per_conv_group * p.k >= kFewestProducts &&
      tiles_of<Large>(p, sizes) >= device.sm_count) {
    return TileKind::large;
  }
  if (rows_fill_tiles && tiles_of<Wide>(p, sizes) >= device.sm_count) return TileKind::wide;
  return tiles_of<Short>(p, sizes) >= device.sm_count ? TileKind::short_rows : TileKind::small;
}

class AnyArch final : public CudaExecutable {
 public:
  explicit AnyArch(const PlanRequest& request)
      : CudaExecutable(request), tile_(choose_tile(problem_, sizes_, device_)) {
    const int64_t limit = sizes_.y_elements * element_size(problem_.dtype) + kWorkspaceAllowance;
    const int64_t samples = std::max<int64_t>(1, problem_.n);
    at_once_ = largest(samples, [&](int64_t count) { return bytes_of(count, sizes_.l_out) <= limit; });
    positions_ = sizes_.l_out;
    if (bytes_of(at_once_, positions_) <= limit) return;
    // Not even one sample's z fits: it is computed twice, the second time a stretch of positions after the other.
    const int64_t stretches = tiles_along(sizes_.l_out, kStretch);
    positions_ = kStretch * largest(stretches, [&](int64_t count) { return bytes_of(1, count * kStretch) <= limit; });
    twice_ = positions_ < sizes_.l_out;
    positions_ = std::min(positions_, sizes_.l_out);
  }

  size_t workspace_bytes() const override { return static_cast<size_t>(bytes_of(at_once_, positions_)); }

  std::vector<std::pair<std::string, std::string>> config() const override {
    return with_tile(tile_, [&](auto shape) -> std::vector<std::pair<std::string, std::string>> {
      using T = decltype(shape);
      return {{"tile", std::to_string(T::kChannels) + " channels x " + std::to_string(T::kPositions) + " positions"},
              {"depth", std::to_string(T::kDepth) + " products"},
              {"CTAs", std::to_string(tiles_of<T>(problem_, sizes_))},
              {"at once", std::to_string(at_once_) + " samples, " + std::to_string(positions_) + " positions"},
              {"convolutions", twice_ && has_norm(problem_) ? "2: for the statistics, then for the result" : "1"}};
    });
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_), z = 4.0 * static_cast<double>(sizes_.z_elements);
    return {.flops = sizes_.flops * (twice_ && has_norm(problem_) ? 2 : 1),
            .min_bytes = least,
            .moved_bytes = least + 2 * z,
            .z_bytes = z,
            .workspace_bytes = static_cast<double>(workspace_bytes())};
  }

  double expected_us() const override {
    // Measured on an H200. On other GPUs times differ, and paths compete by these all the same.
    constexpr double kFixedUs = 16, kFlopsPerUs = 13e6, kBytesPerUs = 3e6;
    const double us_per_product = problem_.dtype == CONVNORM_F32 ? 0.03 : 0.045;  // of a sum, one after the other
    const Accounting cost = accounting();
    const double tiles =
        with_tile(tile_, [&](auto shape) { return static_cast<double>(tiles_of<decltype(shape)>(problem_, sizes_)); });
    const double busy = std::min(1.0, tiles / device_.sm_count);
    // Sums of few products, and groups of few channels, which do not share what they read, reach a part of that rate.
    const auto products = static_cast<double>(sizes_.c_per_conv_group * problem_.k);
    const double shared = std::min(1.0, static_cast<double>(sizes_.o_per_conv_group) / 6);
    const double rate = kFlopsPerUs * products / (products + 120) * shared;
    return kFixedUs + products * us_per_product + cost.flops / (rate * std::max(busy, 1e-3)) +
           cost.moved_bytes / kBytesPerUs;
  }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(sizes_.w_elements) * sizeof(float); }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    any_arch::pack(problem_arguments(problem_, sizes_), weight, static_cast<float*>(packed_weight), stream);
  }

  void enqueue(const Arguments& a, void* workspace, cudaStream_t stream) const override {
    for (int64_t first = 0; first < problem_.n; first += at_once_) {
      Pieces pieces(workspace);
      Wave wave = cut(pieces, std::min(at_once_, problem_.n - first), positions_);
      wave.first = first;
      if (has_norm(problem_)) {
        Wave whole = wave;
        whole.positions = sizes_.l_out;
        if (twice_) whole.z = nullptr;
        convolve(a, whole, stream);
        merge(a, whole, stream);
      }
      wave.partial = nullptr;
      for (; wave.position < sizes_.l_out; wave.position += positions_) {
        wave.positions = std::min(positions_, sizes_.l_out - wave.position);
        if (twice_ || !has_norm(problem_)) convolve(a, wave, stream);
        normalise(a, wave, stream);
      }
    }
  }

 private:
  static constexpr int kStretch = 1024;  // positions: a multiple of every tile's

  // The largest count of 1 to `most` for which `fits`, which holds for fewer if it holds for more; 1 if for none.
  template <class Fits>
  static int64_t largest(int64_t most, const Fits& fits) {
    int64_t low = 1, high = most;
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  void convolve(const Arguments& a, const Wave& wave, cudaStream_t stream) const {
    switch (problem_.dtype) {
      case CONVNORM_F16:
        return convolve_f16(a, wave, tile_, stream);
      case CONVNORM_BF16:
        return convolve_bf16(a, wave, tile_, stream);
      default:
        return convolve_f32(a, wave, tile_, stream);
    }
  }

  Wave cut(Pieces& pieces, int64_t count, int64_t positions) const {
    Wave wave{};
    wave.count = count, wave.positions = positions;
    wave.segment_positions = with_tile(tile_, [](auto shape) { return int{decltype(shape)::kSegment}; });
    wave.segments = tiles_along(sizes_.l_out, wave.segment_positions);
    wave.z = pieces.take<float>(count * problem_.o * positions);
    if (!has_norm(problem_)) return wave;
    wave.partial = pieces.take<SegmentMoments>(count * problem_.o * wave.segments);
    wave.chunks = tiles_along(sizes_.o_per_norm_group * wave.segments, kSegmentsPerChunk);
    if (wave.chunks > 1) wave.merged = pieces.take<Moments>(count * problem_.groups * wave.chunks);
    wave.norms = pieces.take<Norm>(count * problem_.groups);
    return wave;
  }

  int64_t bytes_of(int64_t samples, int64_t positions) const {
    Pieces pieces(nullptr);
    cut(pieces, samples, positions);
    return pieces.used();
  }

  TileKind tile_;
  int64_t at_once_;     // samples
  int64_t positions_;   // at once; of one sample where twice_
  bool twice_ = false;  // the convolution is computed for the statistics, then for the result
};

}  // namespace

Answer consider_any_arch(const PlanRequest& request) { return std::make_unique<AnyArch>(request); }

}  // namespace convnorm::cuda
