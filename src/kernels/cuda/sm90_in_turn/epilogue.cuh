// From z to y of one block of a tile: measured and stored by warps as in collective/warp_epilogue.cuh. In between, the
// tiles of a domain that a CTA holds put their pieces of groups together, so that a CTA publishes one word for a group.
#pragma once

#include "kernels/cuda/collective/row_ops.cuh"
#include "kernels/cuda/collective/warp_epilogue.cuh"
#include "kernels/cuda/sm90_in_turn/traits.cuh"

namespace convnorm::cuda::sm90_in_turn {

template <class T>
class TurnEpilogue : public WarpEpilogue<T> {
  using Base = WarpEpilogue<T>;
  using Element = typename T::Element;
  using Base::kValues, Base::p_, Base::c_, Base::shared_, Base::first_channel_;

 public:
  using Base::place;

  __device__ __forceinline__ TurnEpilogue(const Parameters& p, unsigned char* shared, int warpgroup, int block,
                                          int warp)
      : Base(p, shared, T::kTileWarps * warpgroup + 4 * block + warp) {}

  // Loads the parameters of the warp's channels.
  __device__ __forceinline__ void load_parameters() const {
    const int row = this->warp_ * kWarpRows;
    __syncwarp();  // all have read what was there
    load_row_parameters<T>(p_, shared_, first_channel_ - row, row, row + kWarpRows, Base::lane_anew(), 32);
    __syncwarp();
  }

  // The op before the norm, and the bias, which then counts.
  __device__ __forceinline__ void apply_pre(float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int channel = first_channel_ + Base::lane_anew() / 4 + 8 * h;
      const bool inside = channel < a.o;
      const float bias = inside && a.bias != nullptr ? load_parameter<Element>(a, a.bias, channel) : 0.0f;
      const float slope = inside && a.pre == CONVNORM_PRELU
                              ? load_parameter<Element>(a, a.pre_slope, a.pre_slope_per_channel ? channel : 0)
                              : 0.0f;
      float v[kValues / 2];
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) v[i] = d[Base::place(h, i)] + bias;
      apply_row_pre<Element>(a, v, slope);
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) d[Base::place(h, i)] = v[i];
    }
  }

  __device__ __forceinline__ void measure(const TurnWalk& walk, const float (&d)[kValues]) const {
    float2* const pieces = pieces_of(walk.round(), walk.place) + this->warp_of_tile() * this->groups_of_warp();
    Base::take_spreads(walk, d, [&](int its_lane, int lower, const Spread& s) {
      pieces[(its_lane / 4 >> c_.piece_rows_log2) + lower] = make_float2(s.mean, s.m2);
    });
  }

  // The moments of the domain's groups, by the warps of the CTA's last tile of it, each its share, once all pieces are
  // there. What others wait for is published first.
  __device__ __forceinline__ void exchange(const TurnWalk& walk, int warp) const {
    const int lane = Base::lane_anew();
    const int channels = static_cast<int>(p_.arguments.o) - walk.row_tile * T::kTileWarps * kWarpRows;
    const int groups = min(config().tile_groups, static_cast<int>(c_.group_rows.divide(channels - 1)) + 1);
#pragma unroll 1
    for (int group = warp; group < groups; group += 4) {
      const Spread own = of_cta(walk, group, lane);
      if (config().members == 1) {
        if (lane == 0) moments(walk.round())[group] = this->of_group(own);
      } else if (lane == 0) {
        publish(words_of(walk, group) + member(), this->tag_of(walk), own);
      }
    }
    if (config().members > 1) {
#pragma unroll 1
      for (int group = warp; group < groups; group += 4) {
        const Spread all = of_members(words_of(walk, group), this->tag_of(walk), lane);
        if (lane == 0) moments(walk.round())[group] = this->of_group(all);
      }
    }
    __syncwarp();
  }

  // Fetches the moments of the warp's rows.
  __device__ __forceinline__ void take_moments(const TurnWalk& walk) const {
    const int lane = Base::lane_anew();
    if (lane < this->groups_of_warp()) {
      const int row = this->warp_of_tile() * kWarpRows + (lane << c_.piece_rows_log2);
      this->moment_table()[lane] = moments(walk.round())[c_.group_rows.divide(row)];
    }
    __syncwarp();
  }

  // To y: the norm, the ops, rows.
  __device__ __forceinline__ void finish(const TurnWalk& walk, float (&d)[kValues]) const {
    const Arguments& a = p_.arguments;
    const int lane = Base::lane_anew();
    const int at = this->warp_ * kWarpRows + lane / 4, channel = first_channel_ + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) normalise(at + 8 * h, h, d);
#pragma unroll 1
    for (int s = 0; s < a.post_count; ++s) {
      const float argument = a.post[s].param;
      detail::with_formula(a.post[s].op, [&](const auto& formula) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) d[i] = formula(d[i], argument);
      });
    }
    if (p_.store == Store::kStaged) return Base::store_staged(walk, d);
    const int columns = Base::stored_columns_of(walk);
    Element* const to = Base::row_of_y(walk, channel);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto value = [&](int i) { return d[place(h, i)]; };
      Element* const row = to + 8 * h * a.l_out;
      const bool inside = channel + 8 * h < a.o;
      if (p_.store == Store::kVectors) {
        store_pairs<Element, T::kTiles8>(value, lane % 4, row, inside ? columns : 0);
      } else if (inside) {
#pragma unroll
        for (int i = 0; i < kRow; ++i) {
          const int column = i / 2 * 8 + i % 2 + 2 * (lane % 4);
          if (column < columns) row[column] = from_float<Element>(value(i));
        }
      }
    }
  }

 private:
  static constexpr int kWords = kMemberPlaces / 32;  // on their way to a lane at once
  static constexpr int kRow = kValues / 2;           // values of a row

  // Row h of a block, `at` of those of all warpgroups.
  __device__ __forceinline__ void normalise(int at, int h, float (&d)[kValues]) const {
    const RowParameters parameters = row_parameters(p_, shared_)[at];
    const int first = at & ~(kWarpRows - 1);
    const float2 moments =
        reinterpret_cast<const float2*>(shared_ + p_.plan.statistics)[first + ((at - first) >> c_.piece_rows_log2)];
    const typename Base::Norm norm = {moments.x - parameters.bias, moments.y * parameters.gamma, parameters.beta};
#pragma unroll
    for (int i = 0; i < kRow; ++i) d[place(h, i)] = norm(d[place(h, i)]);
  }

  __device__ __forceinline__ const Config& config() const { return p_.config; }

  __device__ __forceinline__ float2* pieces_of(unsigned round, int place) const {
    return reinterpret_cast<float2*>(shared_ + p_.plan.pieces) +
           (round % kDomainPlaces * config().held + place) * config().tile_pieces;
  }
  __device__ __forceinline__ float2* moments(unsigned round) const {
    return reinterpret_cast<float2*>(shared_ + p_.plan.moments) + round % kDomainPlaces * config().tile_groups;
  }

  // Of a group's CTAs.
  __device__ __forceinline__ int member() const {
    return static_cast<int>(blockIdx.z) * config().domain_ctas + static_cast<int>(blockIdx.x);
  }
  __device__ __forceinline__ ptx::Word* words_of(const TurnWalk& walk, int group) const {
    const unsigned team = walk.round() % kRounds * c_.teams + blockIdx.y;
    return p_.slot.words + (team * config().tile_groups + group) * config().members;
  }

  // Values of a group in a tile, or in all tiles of a CTA in column `column` of CTAs.
  __device__ __forceinline__ float values_of(int columns) const {
    return static_cast<float>(columns) * static_cast<float>(1 << (config().group_pieces_log2 + c_.piece_rows_log2));
  }
  __device__ __forceinline__ float values_of_cta(int column) const {
    const int step = config().held * T::kColumns;
    return values_of(min(static_cast<int>(p_.arguments.l_out) - column * step, step));
  }

  __device__ __forceinline__ float values_of_member(int member) const {
    const int row = static_cast<int>(config().member_columns.divide(member));
    return values_of_cta(member - row * config().domain_ctas);
  }

  // A group's pieces, one in each lane.
  __device__ __forceinline__ Spread of_cta(const TurnWalk& walk, int group, int lane) const {
    const int place = lane >> config().group_pieces_log2;
    const int piece = (group << config().group_pieces_log2) + (lane & ((1 << config().group_pieces_log2) - 1));
    Spread its = {0, 0, 0};
    if (place < walk.tiles()) {
      const float2 found = pieces_of(walk.round(), place)[piece];
      const int columns = this->columns_of(static_cast<int>(blockIdx.x) * config().held + place);
      its = {static_cast<float>(columns << c_.piece_rows_log2), found.x, found.y};
    }
    const float all = values_of_cta(static_cast<int>(blockIdx.x)), share = divide(its.count, all);
    if (__all_sync(~0u, its.count == 0 || Scale::in_range(its.m2))) {
      const Moments m = merge_lanes({its.count, its.mean, its.m2}, share, all, 5);
      if (Scale::in_range(m.m2)) return {all, m.mean, m.m2};
    }
    return spread_of(true, [&](const Scale& scale) {
      return merge_lanes(its.count > 0 ? scale.moments(its) : Moments{0, 0, 0}, share, all, 5);
    });
  }

  // The words of all CTAs that have a part of a group, by all lanes together: a lane that waits by itself would leave
  // the sums behind it to a slow way through divergent lanes. Several words are on their way to a lane at once; more of
  // them would be spilled before they are there.
  __device__ __forceinline__ Spread of_members(const ptx::Word* words, uint64_t tag, int lane) const {
    const int members = config().members;
    const float all = static_cast<float>(c_.group_rows.value) * static_cast<float>(p_.arguments.l_out);
    const float inverse = __fdividef(1.0f, all);
    float base = 0, sum = 0, m2 = 0;  // of distances from `base`, the mean of one of them
    bool ordinary = true;
#pragma unroll 1
    for (int first = 0; first < members; first += 32 * kWords) {
      ptx::Word found[kWords];
      Patience patience;
      while (true) {
        bool there = true;
#pragma unroll
        for (int u = 0; u < kWords; ++u) found[u] = ptx::load_relaxed(words + first + 32 * u + lane);
#pragma unroll
        for (int u = 0; u < kWords; ++u) there = there && (found[u].tag == tag || first + 32 * u + lane >= members);
        if (__all_sync(~0u, there)) break;
        patience.lose("the statistics of other CTAs");
      }
      if (first == 0) base = __shfl_sync(~0u, __uint_as_float(static_cast<uint32_t>(found[0].payload)), 0);
#pragma unroll
      for (int u = 0; u < kWords; ++u) {
        const int at = first + 32 * u + lane;
        if (at >= members) continue;
        const float its_m2 = __uint_as_float(static_cast<uint32_t>(found[u].payload >> 32));
        const float distance = __uint_as_float(static_cast<uint32_t>(found[u].payload)) - base;
        const float weighted = values_of_member(at) * distance;
        ordinary = ordinary && Scale::in_range(its_m2);
        sum += weighted;
        m2 += fmaf(weighted, distance, its_m2);
      }
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask <<= 1) {
      sum += __shfl_xor_sync(~0u, sum, mask);
      m2 += __shfl_xor_sync(~0u, m2, mask);
    }
    const float mean = sum * inverse;
    m2 = fmaf(-sum, mean, m2);
    if (__all_sync(~0u, ordinary && Scale::in_range(m2))) return {all, base + mean, m2};
    return of_scaled_members(words, tag, lane, all);
  }

  // The same where squares of some lie beyond fp32's range.
  __device__ __forceinline__ Spread of_scaled_members(const ptx::Word* words, uint64_t tag, int lane, float all) const {
    return spread_of(true, [&](const Scale& scale) {
      Moments part = {0, 0, 0};
#pragma unroll 1
      for (int at = lane; at < config().members; at += 32) {
        const Moments own = scale.moments(await(words + at, tag, values_of_member(at)));
        part = part.count > 0 ? merge(part, own) : own;
      }
      return merge_lanes(part, divide(part.count, all), all, 5);
    });
  }
};

}  // namespace convnorm::cuda::sm90_in_turn
