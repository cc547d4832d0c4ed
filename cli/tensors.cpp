#include "cli/tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "cli/failure.hpp"
#include "cli/files/input_file.hpp"
#include "cli/library.hpp"
#include "cli/random.hpp"

namespace convnorm::cli {
namespace {

struct KnownTensor {
  const char* name;
  const char* asked_by;  // what in the line makes the problem want it
};

constexpr std::array<KnownTensor, 11> kKnown = {{{"x", "every line"},
                                                 {"weight", "every line"},
                                                 {"bias", "bias=1"},
                                                 {"gamma", "affine=1 together with g above 0"},
                                                 {"beta", "affine=1 together with g above 0"},
                                                 {"lengths", "lengths=1"},
                                                 {"pre_slope", "pre=prelu"},
                                                 {"post_slope", "post=prelu"},
                                                 {"film_scale", "post=film"},
                                                 {"film_shift", "post=film"},
                                                 {"residual", "post=add"}}};

alignas(int64_t) constexpr std::byte kEmpty{};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

const KnownTensor& known_tensor(std::string_view name) {
  const auto found = std::ranges::find(kKnown, name, [](const KnownTensor& t) { return std::string_view(t.name); });
  if (found != kKnown.end()) return *found;
  // A hostile name may be megabytes long, and its length is a factor of the work.
  const std::string_view start = name.substr(0, 64);
  const auto nearest =
      std::ranges::min_element(kKnown, {}, [start](const KnownTensor& t) { return edit_distance(start, t.name); });
  std::vector<std::string_view> names;
  for (const KnownTensor& t : kKnown) names.emplace_back(t.name);
  throw BadInput(fmt::format("tensor {} is unknown; did you mean {}? (known are {})", printable(start), nearest->name,
                             fmt::join(names, ", ")));
}

bool is_float(ElementType type) {
  return type == ElementType::f16 || type == ElementType::bf16 || type == ElementType::f32 || type == ElementType::f64;
}

Tensor fitted(const WantedTensor& wanted, Tensor tensor, const convnorm_problem& problem, Origin* origin) {
  const bool single = wanted.one_will_do && tensor.shape == std::vector<int64_t>{1};
  if (tensor.shape != wanted.shape && !single) {
    throw BadInput(fmt::format("tensor {} has shape {}, the line wants {}{}; change the line or the tensor",
                               wanted.name, shape_text(tensor.shape), shape_text(wanted.shape),
                               wanted.one_will_do ? " or (1,)" : ""));
  }
  if (wanted.kind == Kind::index) {
    if (tensor.type == ElementType::i64) return tensor;
    throw BadInput(
        fmt::format("tensor {} is {}, accepted is i64; convert it first", wanted.name, element_name(tensor.type)));
  }
  if (!is_float(tensor.type)) {
    throw BadInput(fmt::format("tensor {} is {}, accepted are f16, bf16, f32 and f64; convert it first", wanted.name,
                               element_name(tensor.type)));
  }
  const ElementType type = wanted.kind == Kind::data ? element_type(problem.dtype) : ElementType::f32;
  if (tensor.type == type) return tensor;
  if (wanted.kind == Kind::data) {
    origin->notes.push_back(
        fmt::format("{} converted from {} to {}", wanted.name, element_name(tensor.type), element_name(type)));
  }
  return convert(tensor, type);
}

// So long that at least one output is valid and reflection stays inside.
int64_t shortest_length(const convnorm_problem& p) {
  int64_t shortest = std::max((p.l + 2) / 3, p.dilation * (p.k - 1) + 1 - p.pad_left - p.pad_right);
  if (p.pad == CONVNORM_REFLECT) shortest = std::max(shortest, std::max(p.pad_left, p.pad_right) + 1);
  return std::clamp<int64_t>(shortest, std::min<int64_t>(1, p.l), p.l);
}

template <class T>
void fill(Tensor& tensor, const std::function<T()>& next) {
  T* out = reinterpret_cast<T*>(tensor.data.data());
  std::generate_n(out, tensor.data.size() / sizeof(T), next);
}

Tensor blank(ElementType type, const std::vector<int64_t>& shape) {
  return {type, shape, std::vector<std::byte>(static_cast<size_t>(byte_count(type, shape)))};
}

// Weights keep the variance of x, parameters stay near their neutral values: outputs are of order one.
Tensor draw(const WantedTensor& wanted, const convnorm_problem& p, uint64_t seed) {
  Random random(seed, wanted.name);
  if (wanted.kind == Kind::index) {
    Tensor tensor = blank(ElementType::i64, wanted.shape);
    fill<int64_t>(tensor, [&] { return random.integer(shortest_length(p), p.l); });
    return tensor;
  }
  Tensor tensor = blank(ElementType::f32, wanted.shape);
  if (wanted.name == "pre_slope" || wanted.name == "post_slope") {
    fill<float>(tensor, [&] { return static_cast<float>(0.5 * random.uniform()); });
  } else {
    double mean = 0, spread = 1;
    if (wanted.name == "x") mean = 0.3;
    if (wanted.name == "weight") spread = 1 / std::sqrt(static_cast<double>(p.c / p.conv_groups * p.k));
    if (wanted.name == "bias") spread = 0.5;
    if (wanted.name == "gamma" || wanted.name == "film_scale") mean = 1, spread = 0.2;
    if (wanted.name == "beta" || wanted.name == "film_shift") spread = 0.2;
    fill<float>(tensor, [&] { return static_cast<float>(mean + spread * random.normal()); });
  }
  const ElementType type = wanted.kind == Kind::data ? element_type(p.dtype) : ElementType::f32;
  return type == ElementType::f32 ? tensor : convert(tensor, type);
}

// Channels in front of post stage `index`.
int64_t channels_before(const convnorm_problem& p, int index) {
  const bool halved =
      std::any_of(p.post, p.post + index, [](const convnorm_stage& stage) { return stage.op == CONVNORM_GLU; });
  return halved ? p.o / 2 : p.o;
}

}  // namespace

ElementType element_type(convnorm_dtype dtype) {
  switch (dtype) {
    case CONVNORM_F16:
      return ElementType::f16;
    case CONVNORM_BF16:
      return ElementType::bf16;
    case CONVNORM_F32:
      break;
  }
  return ElementType::f32;
}

std::vector<int64_t> output_shape(const convnorm_problem& p) {
  const int64_t channels = convnorm_problem_output_channels(&p), length = convnorm_problem_output_length(&p);
  if (p.layout == CONVNORM_NCL) return {p.n, channels, length};
  return {p.n, length, channels};
}

std::vector<WantedTensor> wanted_tensors(const convnorm_problem& p) {
  std::vector<WantedTensor> all;
  const auto want = [&all](const char* name, std::vector<int64_t> shape, Kind kind, bool one_will_do = false) {
    all.push_back({name, std::move(shape), kind, one_will_do});
  };
  if (p.layout == CONVNORM_NCL) {
    want("x", {p.n, p.c, p.l}, Kind::data);
  } else {
    want("x", {p.n, p.l, p.c}, Kind::data);
  }
  want("weight", {p.o, p.c / p.conv_groups, p.k}, Kind::data);
  if (p.bias) want("bias", {p.o}, Kind::parameter);
  if (p.affine && p.groups > 0) {
    want("gamma", {p.o}, Kind::parameter);
    want("beta", {p.o}, Kind::parameter);
  }
  if (p.lengths) want("lengths", {p.n}, Kind::index);
  if (p.pre.op == CONVNORM_PRELU) want("pre_slope", {p.o}, Kind::parameter, true);
  for (int i = 0; i < p.post_count; ++i) {
    const int64_t channels = channels_before(p, i);
    if (p.post[i].op == CONVNORM_PRELU) want("post_slope", {channels}, Kind::parameter, true);
    if (p.post[i].op == CONVNORM_FILM) {
      want("film_scale", {p.n, channels}, Kind::parameter);
      want("film_shift", {p.n, channels}, Kind::parameter);
    }
    if (p.post[i].op == CONVNORM_ADD) want("residual", output_shape(p), Kind::data);
  }
  return all;
}

convnorm_tensors Operands::view() const {
  const auto data = [this](const char* name) -> const void* {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return nullptr;
    // A tensor without elements is still a tensor that is there.
    return found->second.data.empty() ? static_cast<const void*>(&kEmpty) : found->second.data.data();
  };
  const auto per_channel = [this](const char* name) -> int32_t {
    const auto found = tensors.find(name);
    return found != tensors.end() && found->second.shape != std::vector<int64_t>{1};
  };
  convnorm_tensors t{};
  point_to_inputs(t, data);
  t.pre_slope_per_channel = per_channel("pre_slope");
  t.post_slope_per_channel = per_channel("post_slope");
  t.param_dtype = CONVNORM_F32;
  return t;
}

Operands complete(const convnorm_problem& problem, TensorMap given, uint64_t seed, Origin* origin) {
  Operands operands{problem, {}};
  const std::vector<WantedTensor> wanted = wanted_tensors(problem);
  for (const auto& [name, tensor] : given) {
    const KnownTensor& known = known_tensor(name);
    if (std::ranges::find(wanted, name, &WantedTensor::name) == wanted.end()) {
      throw BadInput(fmt::format("tensor {} is given, but the line does not use it; it needs {} in the line", name,
                                 known.asked_by));
    }
  }
  for (const WantedTensor& want : wanted) {
    const auto found = given.find(want.name);
    if (found != given.end()) {
      operands.tensors.emplace(want.name, fitted(want, std::move(found->second), problem, origin));
    } else {
      operands.tensors.emplace(want.name, draw(want, problem, seed));
      origin->drawn.push_back(want.name);
    }
  }
  return operands;
}

Tensor cut(const Tensor& tensor, int axis, int64_t begin, int64_t count) {
  Tensor part{tensor.type, tensor.shape, {}};
  part.shape[static_cast<size_t>(axis)] = count;
  const size_t inner = static_cast<size_t>(std::accumulate(tensor.shape.begin() + axis + 1, tensor.shape.end(),
                                                           int64_t{1}, std::multiplies<>())) *
                       element_size(tensor.type);
  const size_t step = inner * static_cast<size_t>(tensor.shape[static_cast<size_t>(axis)]);
  const size_t bytes = inner * static_cast<size_t>(count);
  part.data.reserve(static_cast<size_t>(byte_count(part.type, part.shape)));
  for (size_t at = inner * static_cast<size_t>(begin); bytes > 0 && at + bytes <= tensor.data.size(); at += step) {
    const auto from = tensor.data.begin() + static_cast<std::ptrdiff_t>(at);
    part.data.insert(part.data.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
  }
  return part;
}

}  // namespace convnorm::cli
