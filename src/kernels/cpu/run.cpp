#include "kernels/cpu/run.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "epilogue/ops.hpp"

namespace convnorm::cpu {

GroupNorm GroupNorm::from(const Moments& m, double eps) {
  GroupNorm norm;
  norm.mean_high = static_cast<float>(m.mean);
  norm.mean_low = static_cast<float>(m.mean - static_cast<double>(norm.mean_high));
  norm.rstd = 1.0 / std::sqrt((m.count > 0 ? m.m2 / m.count : 0.0) + eps);
  return norm;
}

Parameters::Parameters(const Problem& p, const Kernels& k, const convnorm_tensors* t, Arena& arena) {
  const bool convert = p.dtype != CONVNORM_F32 && (!t || t->param_dtype != CONVNORM_F32);
  const auto one = [&](bool needed, const void* from, int64_t count, const float*& to) {
    if (!needed) return;
    float* room = p.dtype != CONVNORM_F32 ? arena.take<float>(count) : nullptr;
    if (!t) return;
    if (convert) k.to_float(from, t->param_dtype, room, count);
    to = convert ? room : static_cast<const float*>(from);
  };
  // Channels that `op` sees: a glu before it has halved them.
  const auto channels_at = [&](convnorm_op op) {
    int64_t channels = p.o;
    for (int i = 0; i < p.post_count && p.post[i].op != op; ++i) {
      if (p.post[i].op == CONVNORM_GLU) channels /= 2;
    }
    return channels;
  };
  one(p.bias, t ? t->bias : nullptr, p.o, bias);
  one(has_affine(p), t ? t->gamma : nullptr, p.o, gamma);
  one(has_affine(p), t ? t->beta : nullptr, p.o, beta);
  // A slope tensor may have a single element; room is kept for one per channel.
  const auto slopes = [](int32_t per_channel, int64_t channels) { return per_channel ? channels : int64_t{1}; };
  one(p.pre.op == CONVNORM_PRELU, t ? t->pre_slope : nullptr, slopes(t ? t->pre_slope_per_channel : 1, p.o), pre_slope);
  one(has_post(p, CONVNORM_PRELU), t ? t->post_slope : nullptr,
      slopes(t ? t->post_slope_per_channel : 1, channels_at(CONVNORM_PRELU)), post_slope);
  const int64_t film = p.n * channels_at(CONVNORM_FILM);
  one(has_post(p, CONVNORM_FILM), t ? t->film_scale : nullptr, film, film_scale);
  one(has_post(p, CONVNORM_FILM), t ? t->film_shift : nullptr, film, film_shift);
}

void Run::pre(int64_t o, float* row, int64_t count) const {
  const convnorm_op op = g.problem.pre.op;
  if (op == CONVNORM_NONE) return;
  const float slope = parameters.pre_slope ? parameters.pre_slope[tensors.pre_slope_per_channel ? o : 0] : 0.0f;
  g.kernels->pointwise(row, count, op, slope);
}

Finisher::Finisher(const Run& run, const GroupNorm* norms, int64_t first_sample, bool stream, float* scratch)
    : run_(run),
      norms_(norms),
      first_sample_(first_sample),
      stream_(stream),
      row_(scratch),
      partner_row_(scratch + kStatisticsBlock),
      other_(scratch + 2 * kStatisticsBlock) {
  const Problem& p = run.g.problem;
  glu_ = 0;
  while (glu_ < p.post_count && p.post[glu_].op != CONVNORM_GLU) ++glu_;
  // The first op rides along with the norm when it needs nothing but the value and a parameter.
  rides_ = glu_ > 0 && (op_info(p.post[0].op).kind == OpKind::pointwise || op_info(p.post[0].op).kind == OpKind::slope);
  // A row that is visited again must be in the caches, so past them go only those that are finished in one pass.
  direct_ = p.dtype == CONVNORM_F32 && p.layout == CONVNORM_NCL && (!stream || p.post_count == (rides_ ? 1 : 0));
}

float Finisher::argument(const convnorm_stage& stage, int64_t o) const {
  if (op_info(stage.op).kind != OpKind::slope) return static_cast<float>(stage.param);
  return run_.parameters.post_slope[run_.tensors.post_slope_per_channel ? o : 0];
}

void Finisher::transform(int64_t n, int64_t o, int64_t begin, int64_t count, const float* z, float* out) const {
  const Problem& p = run_.g.problem;
  const Parameters& q = run_.parameters;
  NormRow norm = {
      .z = z, .out = out, .count = count, .mean_high = 0, .mean_low = 0, .scale = 1, .shift = 0, .normalise = false};
  if (has_norm(p)) {
    const GroupNorm& group = norms_[(n - first_sample_) * p.groups + o / run_.g.sizes.o_per_norm_group];
    norm.mean_high = group.mean_high;
    norm.mean_low = group.mean_low;
    // A tiny eps and no spread make rstd larger than fp32 holds; infinity times a deviation of 0 would be NaN.
    const double scale = group.rstd * (q.gamma ? static_cast<double>(q.gamma[o]) : 1.0);
    constexpr double kLargest = std::numeric_limits<float>::max();
    norm.scale = static_cast<float>(std::isnan(scale) ? scale : std::clamp(scale, -kLargest, kLargest));
    norm.shift = q.beta ? q.beta[o] : 0.0f;
    norm.normalise = true;
  }
  norm.stream = direct_ && stream_;
  if (rides_) {
    run_.g.kernels->norm_row(norm, p.post[0].op, argument(p.post[0], o));
  } else {
    run_.g.kernels->norm_row(norm, CONVNORM_NONE, 0.0f);
  }
  apply(rides_ ? 1 : 0, glu_, n, o, begin, count, out);
}

void Finisher::apply(int first, int last, int64_t n, int64_t o, int64_t begin, int64_t count, float* row) const {
  const Problem& p = run_.g.problem;
  const Parameters& q = run_.parameters;
  const Kernels& k = *run_.g.kernels;
  for (int i = first; i < last; ++i) {
    const convnorm_stage& stage = p.post[i];
    const int64_t channels = i < glu_ ? p.o : run_.g.half;
    switch (stage.op) {
      case CONVNORM_FILM:
        k.film(row, count, q.film_scale[n * channels + o], q.film_shift[n * channels + o]);
        break;
      case CONVNORM_ADD: {
        const bool nlc = p.layout == CONVNORM_NLC;
        const int64_t l_out = run_.g.sizes.l_out, c_y = run_.g.sizes.c_y;
        const int64_t origin = nlc ? n * l_out * c_y + o : (n * c_y + o) * l_out;
        k.fetch_row({.x = static_cast<const char*>(run_.tensors.residual) + origin * element_size(p.dtype),
                     .step = nlc ? c_y : 1,
                     .length = l_out,
                     .first = begin,
                     .every = 1,
                     .count = count,
                     .reach_left = 0,
                     .reach_right = 0,
                     .dtype = p.dtype,
                     .pad = CONVNORM_ZEROS},
                    other_);
        k.add(row, other_, count);
        break;
      }
      default:
        k.pointwise(row, count, stage.op, argument(stage, o));
        break;
    }
  }
}

void Finisher::operator()(int64_t n, int64_t c, int64_t begin, int64_t count, const float* z,
                          const float* partner) const {
  const Problem& p = run_.g.problem;
  const Kernels& k = *run_.g.kernels;
  const int64_t l_out = run_.g.sizes.l_out, c_y = run_.g.sizes.c_y, element = element_size(p.dtype);
  const bool nlc = p.layout == CONVNORM_NLC;
  char* y = static_cast<char*>(run_.tensors.y) +
            (nlc ? (n * l_out + begin) * c_y + c : (n * c_y + c) * l_out + begin) * element;
  float* row = direct_ ? reinterpret_cast<float*>(y) : row_;
  transform(n, c, begin, count, z, row);
  if (partner) {
    transform(n, c + run_.g.half, begin, count, partner, partner_row_);
    k.glu(row, partner_row_, count);
    apply(glu_ + 1, p.post_count, n, c, begin, count, row);
  }
  if (direct_) return;
  if (!nlc) return k.from_float(row, y, p.dtype, count, stream_);
  if (p.dtype == CONVNORM_F32) {
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(y)[i * c_y] = row[i];
  } else {
    uint16_t* half = reinterpret_cast<uint16_t*>(other_);
    k.from_float(row, half, p.dtype, count, false);
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<uint16_t*>(y)[i * c_y] = half[i];
  }
}

void Finisher::rows(int64_t n, int64_t c, int64_t rows, int64_t begin, int64_t count, const float* z,
                    const float* partner, int64_t z_row) const {
  // Channels last: few positions at a time, so that a cache line of y is filled by its neighbours before it leaves.
  const int64_t segment = run_.g.problem.layout == CONVNORM_NLC ? 64 : kStatisticsBlock;
  const auto one = [&](int64_t r, int64_t at) {
    (*this)(n, c + r, begin + at, std::min(segment, count - at), z + r * z_row + at,
            partner ? partner + r * z_row + at : nullptr);
  };
  if (run_.g.problem.layout == CONVNORM_NLC) {
    for (int64_t at = 0; at < count; at += segment) {
      for (int64_t r = 0; r < rows; ++r) one(r, at);
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t at = 0; at < count; at += segment) one(r, at);
    }
  }
}

void Finisher::zero_tail(int64_t n, int64_t c, int64_t rows, int64_t begin) const {
  const Problem& p = run_.g.problem;
  const int64_t l_out = run_.g.sizes.l_out, c_y = run_.g.sizes.c_y, element = element_size(p.dtype);
  char* y = static_cast<char*>(run_.tensors.y);
  if (begin >= l_out) return;
  if (p.layout == CONVNORM_NLC) {
    for (int64_t q = begin; q < l_out; ++q) {
      std::memset(y + ((n * l_out + q) * c_y + c) * element, 0, static_cast<size_t>(rows * element));
    }
  } else {
    for (int64_t r = c; r < c + rows; ++r) {
      std::memset(y + ((n * c_y + r) * l_out + begin) * element, 0, static_cast<size_t>((l_out - begin) * element));
    }
  }
}

GroupNorm merge_group(const Run& run, const Moments* partial, int64_t partial_blocks, int64_t n, int64_t group) {
  const int64_t channels = run.g.sizes.o_per_norm_group;
  Moments total;
  for (int64_t o = group * channels; o < (group + 1) * channels; ++o) {
    const Moments* row = partial + o * partial_blocks;
    for (int64_t b = 0; b < ceil_div(run.l_out(n), kStatisticsBlock); ++b) merge(total, row[b]);
  }
  return GroupNorm::from(total, run.g.problem.eps);
}

bool store_past_caches(const Geometry& g) {
  return g.problem.dtype == CONVNORM_F32 && g.problem.layout == CONVNORM_NCL &&
         (g.sizes.x_elements + g.sizes.y_elements) * 4 > std::min(cache_bytes(3), kSharedCacheBytes) / 2;
}

}  // namespace convnorm::cpu
