#include "kernels/cuda/any_arch/any_arch.hpp"

#include <algorithm>
#include <string>

#include "kernels/cuda/any_arch/traits.hpp"
#include "kernels/cuda/executable.hpp"

namespace convnorm::cuda {

namespace {

using namespace any_arch;

constexpr int64_t kAlignment = 256;
constexpr int64_t kWorkspaceAllowance = int64_t{64} << 20;  // beyond the bytes of y

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
  if (rows_fill_tiles && tiles_of<Wide>(p, sizes) >= device.sm_count) return TileKind::wide;
  return tiles_of<Short>(p, sizes) >= device.sm_count ? TileKind::short_rows : TileKind::small;
}

class AnyArch final : public CudaExecutable {
 public:
  explicit AnyArch(const PlanRequest& request)
      : CudaExecutable(request), tile_(choose_tile(problem_, sizes_, device_)) {
    const int64_t limit = sizes_.y_elements * element_size(problem_.dtype) + kWorkspaceAllowance;
    const int64_t each = std::max<int64_t>(1, bytes_of(2) - bytes_of(1));
    // Pieces are rounded up, so one sample alone may take a little more than the difference.
    at_once_ = std::clamp<int64_t>((limit - bytes_of(1)) / each + 1, 1, std::max<int64_t>(1, problem_.n));
  }

  size_t workspace_bytes() const override { return static_cast<size_t>(bytes_of(at_once_)); }

  std::vector<std::pair<std::string, std::string>> config() const override {
    return with_tile(tile_, [&](auto shape) -> std::vector<std::pair<std::string, std::string>> {
      using T = decltype(shape);
      return {{"tile", std::to_string(T::kChannels) + " channels x " + std::to_string(T::kPositions) + " positions"},
              {"depth", std::to_string(T::kDepth) + " products"},
              {"CTAs", std::to_string(tiles_of<T>(problem_, sizes_))},
              {"at once", std::to_string(at_once_) + " samples"}};
    });
  }

  Accounting accounting() const override {
    const double least = compulsory_bytes(problem_, sizes_), z = 4.0 * static_cast<double>(sizes_.z_elements);
    return {.flops = sizes_.flops,
            .min_bytes = least,
            .moved_bytes = least + 2 * z,
            .z_bytes = z,
            .workspace_bytes = static_cast<double>(workspace_bytes())};
  }

 protected:
  size_t packed_weight_bytes() const override { return static_cast<size_t>(sizes_.w_elements) * sizeof(float); }

  void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const override {
    any_arch::pack(problem_arguments(problem_, sizes_), weight, static_cast<float*>(packed_weight), stream);
  }

  void enqueue(const Arguments& a, void* workspace, cudaStream_t stream) const override {
    for (int64_t first = 0; first < problem_.n; first += at_once_) {
      Pieces pieces(workspace);
      const Wave wave = cut(pieces, first, std::min(at_once_, problem_.n - first));
      switch (problem_.dtype) {
        case CONVNORM_F16:
          convolve_f16(a, wave, tile_, stream);
          break;
        case CONVNORM_BF16:
          convolve_bf16(a, wave, tile_, stream);
          break;
        default:
          convolve_f32(a, wave, tile_, stream);
          break;
      }
      if (has_norm(problem_)) merge(a, wave, stream);
      normalise(a, wave, stream);
    }
  }

 private:
  Wave cut(Pieces& pieces, int64_t first, int64_t count) const {
    Wave wave{};
    wave.first = first, wave.count = count;
    wave.segment_positions = with_tile(tile_, [](auto shape) { return int{decltype(shape)::kSegment}; });
    wave.segments = tiles_along(sizes_.l_out, wave.segment_positions);
    wave.z = pieces.take<float>(count * problem_.o * sizes_.l_out);
    if (!has_norm(problem_)) return wave;
    wave.partial = pieces.take<SegmentMoments>(count * problem_.o * wave.segments);
    wave.chunks = tiles_along(sizes_.o_per_norm_group * wave.segments, kSegmentsPerChunk);
    if (wave.chunks > 1) wave.merged = pieces.take<Moments>(count * problem_.groups * wave.chunks);
    wave.norms = pieces.take<Norm>(count * problem_.groups);
    return wave;
  }

  int64_t bytes_of(int64_t samples) const {
    Pieces pieces(nullptr);
    cut(pieces, 0, samples);
    return pieces.used();
  }

  TileKind tile_;
  int64_t at_once_ = 1;
};

}  // namespace

Answer consider_any_arch(const PlanRequest& request) { return std::make_unique<AnyArch>(request); }

}  // namespace convnorm::cuda
