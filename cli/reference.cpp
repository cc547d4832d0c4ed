#include "cli/reference.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/library.hpp"
#include "cli/subject.hpp"

namespace convnorm::cli {
namespace {

constexpr double kConditioningFlops = 5e8;

bool has_post(const convnorm_problem& p, convnorm_op op) {
  return std::any_of(p.post, p.post + p.post_count, [op](const convnorm_stage& stage) { return stage.op == op; });
}

// Channels that the norm ties together; 0 where channels cannot be computed apart.
int64_t separable_channels(const convnorm_problem& p) {
  if (p.conv_groups != 1 || has_post(p, CONVNORM_GLU)) return 0;
  return p.groups > 0 ? p.o / p.groups : 1;
}

bool whole_channels(const convnorm_problem& p, const Piece& piece) { return piece.channel_count == p.o; }

// Channels of y that `piece` covers.
std::pair<int64_t, int64_t> output_channels(const convnorm_problem& p, const Piece& piece) {
  if (whole_channels(p, piece)) return {0, convnorm_problem_output_channels(&p)};
  return {piece.channel_begin, piece.channel_count};
}

Tensor cut_output(const convnorm_problem& p, const Tensor& y, const Piece& piece) {
  const auto [begin, count] = output_channels(p, piece);
  return cut(cut(y, 0, piece.sample_begin, piece.sample_count), channel_axis(p), begin, count);
}

Operands cut_operands(const Operands& whole, const Piece& piece) {
  const convnorm_problem& p = whole.problem;
  Operands part{p, {}};
  part.problem.n = piece.sample_count;
  part.problem.o = piece.channel_count;
  if (p.groups > 0) part.problem.groups = p.groups * piece.channel_count / p.o;
  for (const auto& [name, tensor] : whole.tensors) {
    const auto channels = [&](const Tensor& t, int axis) {
      return t.shape[static_cast<size_t>(axis)] == p.o ? cut(t, axis, piece.channel_begin, piece.channel_count) : t;
    };
    if (name == "x" || name == "lengths") {
      part.tensors.emplace(name, cut(tensor, 0, piece.sample_begin, piece.sample_count));
    } else if (name == "residual") {
      part.tensors.emplace(name, cut_output(p, tensor, piece));
    } else if (name == "film_scale" || name == "film_shift") {
      part.tensors.emplace(name, channels(cut(tensor, 0, piece.sample_begin, piece.sample_count), 1));
    } else {
      part.tensors.emplace(name, whole_channels(p, piece) ? tensor : channels(tensor, 0));
    }
  }
  return part;
}

std::vector<float> run_reference(const Operands& operands, int32_t threads) {
  Operands wide{operands.problem, {}};
  wide.problem.dtype = CONVNORM_F32;
  for (const auto& [name, tensor] : operands.tensors) {
    wide.tensors.emplace(name, name == "lengths" ? tensor : convert(tensor, ElementType::f32));
  }
  convnorm_plan_options options;
  convnorm_plan_options_init(&options);
  options.path = "reference";
  options.threads = threads;
  const Plan plan(wide.problem, options);
  std::vector<std::byte> packed(plan.packed_size()), workspace(plan.workspace_size());
  plan.pack(wide.tensors.at("weight").data.data(), packed.data());
  const std::vector<int64_t> shape = output_shape(wide.problem);
  std::vector<float> y(static_cast<size_t>(element_count(shape)));
  convnorm_tensors tensors = wide.view();
  tensors.packed_weight = packed.data();
  tensors.y = y.data();
  plan.execute(tensors, workspace.data());
  return y;
}

Tensor magnitudes(const Tensor& tensor) {
  Tensor result = convert(tensor, ElementType::f32);
  float* const values = reinterpret_cast<float*>(result.data.data());
  std::transform(values, values + result.data.size() / sizeof(float), values, [](float v) { return std::abs(v); });
  return result;
}

// Mean and sum of squared deviations of each channel of one sample.
struct ChannelMoments {
  double mean = 0;
  double centred_squares = 0;
};

std::vector<ChannelMoments> channel_moments(const std::vector<float>& z, const convnorm_problem& p) {
  const int64_t length = static_cast<int64_t>(z.size()) / p.o;
  std::vector<ChannelMoments> all(static_cast<size_t>(p.o));
  for (int64_t c = 0; c < p.o; ++c) {
    const auto at = [&](int64_t i) {
      return static_cast<double>(z[static_cast<size_t>(p.layout == CONVNORM_NCL ? c * length + i : i * p.o + c)]);
    };
    ChannelMoments& moments = all[static_cast<size_t>(c)];
    for (int64_t i = 0; i < length; ++i) moments.mean += at(i) / static_cast<double>(length);
    for (int64_t i = 0; i < length; ++i) moments.centred_squares += std::pow(at(i) - moments.mean, 2);
  }
  return all;
}

}  // namespace

std::vector<Piece> affordable_pieces(const convnorm_problem& p, double flop_budget) {
  const double total = flops(p);
  if (p.n == 0 || total <= flop_budget) return {{0, p.n, 0, p.o}};
  const double sample = total / static_cast<double>(p.n);
  const int64_t unit = separable_channels(p);
  if (sample <= flop_budget || unit == 0) {
    const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(flop_budget / sample));
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < count; ++i) pieces.push_back({i * p.n / count, 1, 0, p.o});
    return pieces;
  }
  const double units = static_cast<double>(p.o / unit);
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(units * flop_budget / sample));
  const int64_t first = (count + 1) / 2 * unit, last = count / 2 * unit;
  std::vector<Piece> pieces = {{0, 1, 0, first}};
  if (last > 0) pieces.push_back({p.n - 1, 1, p.o - last, last});
  return pieces;
}

std::string pieces_text(const convnorm_problem& p, const std::vector<Piece>& pieces) {
  if (pieces.front().sample_count == p.n && whole_channels(p, pieces.front())) return "all";
  std::vector<std::string> parts;
  for (const Piece& piece : pieces) {
    parts.push_back(whole_channels(p, piece)
                        ? fmt::format("sample {}", piece.sample_begin)
                        : fmt::format("sample {} channels {}-{}", piece.sample_begin, piece.channel_begin,
                                      piece.channel_begin + piece.channel_count - 1));
  }
  return fmt::format("{} of {} samples and {} channels", fmt::join(parts, ", "), p.n, p.o);
}

std::vector<float> piece_of_output(const convnorm_problem& p, const Tensor& y, const Piece& piece) {
  return to_float32(cut_output(p, y, piece));
}

Position position_in_output(const convnorm_problem& p, const Piece& piece, int64_t index) {
  const auto [begin, channels] = output_channels(p, piece);
  const int64_t length = convnorm_problem_output_length(&p);
  if (channels == 0 || length <= 0) return {0, 0, 0};
  const int64_t within = index % (channels * length);
  const bool ncl = p.layout == CONVNORM_NCL;
  return {piece.sample_begin + index / (channels * length), begin + (ncl ? within / length : within % channels),
          ncl ? within % length : within / channels};
}

std::vector<float> reference_output(const Operands& operands, const Piece& piece, int32_t threads) {
  return run_reference(cut_operands(operands, piece), threads);
}

double conditioning(const Operands& operands, int32_t threads) {
  convnorm_problem p = operands.problem;
  const int64_t outputs = convnorm_problem_output_length(&p);
  if (p.n == 0 || outputs == 0 || p.l == 0) return 0;
  const int64_t affordable = static_cast<int64_t>(kConditioningFlops / (flops(p) / static_cast<double>(p.n * outputs)));
  // As many inputs as give the affordable outputs, and enough for the padding to stay legal.
  const int64_t reach = p.dilation * (p.k - 1) + std::max(p.pad_left, p.pad_right) + 1;
  const int64_t outputs_kept = std::max<int64_t>(64, affordable);
  const int64_t kept = outputs_kept > (p.l - reach) / p.stride ? p.l : reach + outputs_kept * p.stride;

  Operands part{p, {}};
  part.problem.n = 1;
  part.problem.l = kept;
  part.problem.groups = 0;
  part.problem.lengths = 0;
  part.problem.post_count = 0;
  for (const char* name : {"weight", "bias", "pre_slope"}) {
    if (const auto found = operands.tensors.find(name); found != operands.tensors.end()) part.tensors.insert(*found);
  }
  part.tensors["x"] = cut(cut(operands.tensors.at("x"), 0, 0, 1), length_axis(p), 0, kept);
  const std::vector<ChannelMoments> z = channel_moments(run_reference(part, threads), p);

  part.problem.bias = 0;
  part.problem.pre = {CONVNORM_NONE, 0};
  part.tensors.erase("bias");
  part.tensors.erase("pre_slope");
  part.tensors["x"] = magnitudes(part.tensors["x"]);
  part.tensors["weight"] = magnitudes(part.tensors["weight"]);
  const std::vector<ChannelMoments> products = channel_moments(run_reference(part, threads), p);

  const double length = static_cast<double>(convnorm_problem_output_length(&part.problem));
  const int64_t group = p.groups > 0 ? p.o / p.groups : 1;
  double worst = 0;
  for (int64_t begin = 0; begin < p.o; begin += group) {
    double mean = 0, squares = 0, product = 0;
    for (int64_t c = begin; c < begin + group; ++c) mean += z[static_cast<size_t>(c)].mean / static_cast<double>(group);
    for (int64_t c = begin; c < begin + group; ++c) {
      const ChannelMoments& channel = z[static_cast<size_t>(c)];
      squares += channel.centred_squares + length * std::pow(channel.mean - mean, 2);
      product = std::max(product, products[static_cast<size_t>(c)].mean);
    }
    const double deviation = std::sqrt(squares / (length * static_cast<double>(group)));
    worst = std::max(worst, product / deviation);
  }
  return worst;
}

}  // namespace convnorm::cli
