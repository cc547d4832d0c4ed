#include "bindings/tensors.hpp"

#include <array>
#include <cstdint>

#include "bindings/buffers.hpp"
#include "descriptor/names.hpp"
#include "descriptor/text.hpp"

namespace convnorm {

namespace {

struct Tensor {
  const char* name;
  const void* data;
  bool wanted;
  const char* reason;  // the part of the problem line that asks for it
  int64_t elements;
  int64_t element_bytes;
};

// Channels where `op` stands in the list of post operations: a glu before it has halved them.
int64_t channels_at(const Problem& p, convnorm_op op) {
  int64_t channels = p.o;
  for (int i = 0; i < p.post_count && p.post[i].op != op; ++i) {
    if (p.post[i].op == CONVNORM_GLU) channels /= 2;
  }
  return channels;
}

Tensor y_tensor(const Problem& p, const Sizes& sizes, const convnorm_tensors& t) {
  return {"y", t.y, true, "every problem", sizes.y_elements, element_size(p.dtype)};
}

std::array<Tensor, 10> input_tensors(const Problem& p, const Sizes& sizes, const convnorm_tensors& t) {
  const int64_t element = element_size(p.dtype);
  const int64_t parameter = element_size(t.param_dtype);
  const bool film = has_post(p, CONVNORM_FILM);
  const int64_t film_elements = p.n * channels_at(p, CONVNORM_FILM);
  const int64_t pre_slopes = t.pre_slope_per_channel ? p.o : 1;
  const int64_t post_slopes = t.post_slope_per_channel ? channels_at(p, CONVNORM_PRELU) : 1;
  const bool lengths = p.lengths != 0;
  return {{
      {"x", t.x, true, "every problem", sizes.x_elements, element},
      {"bias", t.bias, p.bias != 0, "bias=1", p.o, parameter},
      {"gamma", t.gamma, has_affine(p), "affine=1 with g >= 1", p.o, parameter},
      {"beta", t.beta, has_affine(p), "affine=1 with g >= 1", p.o, parameter},
      {"lengths", t.lengths, lengths, "lengths=1", p.n, int64_t{sizeof(int64_t)}},
      {"pre_slope", t.pre_slope, p.pre.op == CONVNORM_PRELU, "pre=prelu", pre_slopes, parameter},
      {"post_slope", t.post_slope, has_post(p, CONVNORM_PRELU), "prelu in post", post_slopes, parameter},
      {"film_scale", t.film_scale, film, "film in post", film_elements, parameter},
      {"film_shift", t.film_shift, film, "film in post", film_elements, parameter},
      {"residual", t.residual, has_post(p, CONVNORM_ADD), "add in post", sizes.y_elements, element},
  }};
}

void check_pointer(const Tensor& tensor) {
  if (tensor.wanted && tensor.data == nullptr && tensor.elements > 0) {
    fail(CONVNORM_INVALID_ARGUMENT, "{} is null, but {} needs it; give {} elements", tensor.name, tensor.reason,
         tensor.elements);
  }
  if (!tensor.wanted && tensor.data != nullptr) {
    fail(CONVNORM_INVALID_ARGUMENT, "{} is given, but the problem does not use it; leave it null or ask for it by {}",
         tensor.name, tensor.reason);
  }
  if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(tensor.element_bytes) != 0) {
    fail(CONVNORM_INVALID_ARGUMENT,
         "{} lies at {}, which is not aligned to its elements of {} bytes; copy it to memory that is", tensor.name,
         tensor.data, tensor.element_bytes);
  }
}

void check_flag(const char* name, int32_t value) {
  if (value != 0 && value != 1) fail(CONVNORM_INVALID_ARGUMENT, "{}={} must be 0 or 1", name, value);
}

Region region(const Tensor& tensor) {
  return {tensor.name, tensor.data, static_cast<size_t>(tensor.elements * tensor.element_bytes)};
}

}  // namespace

void check_apart(const Region& written, const Region& other) {
  const auto a = reinterpret_cast<uintptr_t>(written.begin);
  const auto b = reinterpret_cast<uintptr_t>(other.begin);
  if (a == 0 || b == 0 || written.bytes == 0 || other.bytes == 0) return;
  if (a < b + other.bytes && b < a + written.bytes) {
    // With their sizes: one that was made too small reaches into what lies behind it.
    fail(CONVNORM_INVALID_ARGUMENT,
         "{} overlaps {}, which is read while {} is written: {} bytes from {} and {} bytes from {}; give each its own "
         "memory{}",
         written.name, other.name, written.name, written.bytes, written.begin, other.bytes, other.begin, other.advice);
  }
}

void check_weight(const Problem& problem, const void* weight, const Region& packed) {
  const Tensor w{"weight", weight, true, "every problem", Sizes(problem).w_elements, element_size(problem.dtype)};
  check_pointer(w);
  check_apart(packed, region(w));
}

void check_tensors(const convnorm_plan& plan, const convnorm_tensors& t, const Region& packed,
                   const Region& workspace) {
  const Problem& problem = plan.problem;
  if (t.param_dtype != CONVNORM_F32 && t.param_dtype != problem.dtype) {
    fail(CONVNORM_INVALID_ARGUMENT,
         "param_dtype has the value {}, but parameters are f32 (0) or of the problem's dtype {} ({})",
         static_cast<int>(t.param_dtype), kDtypeNames[problem.dtype], static_cast<int>(problem.dtype));
  }
  check_flag("pre_slope_per_channel", t.pre_slope_per_channel);
  check_flag("post_slope_per_channel", t.post_slope_per_channel);

  const Sizes sizes(problem);
  const Tensor y = y_tensor(problem, sizes, t);
  check_pointer(y);
  const std::array<Tensor, 10> inputs = input_tensors(problem, sizes, t);
  for (const Tensor& input : inputs) check_pointer(input);

  // A weight that was not packed is smaller than its region says, and would seem to overlap what lies behind it.
  open_packed(plan, packed.begin);
  check_apart(region(y), packed);
  check_apart(region(y), workspace);
  check_apart(workspace, packed);
  for (const Tensor& input : inputs) {
    check_apart(region(y), region(input));
    check_apart(workspace, region(input));
  }
  if (problem.lengths && !plan.gpu) validate_lengths(problem, t.lengths);
}

void check_memory(const convnorm_plan& plan, const convnorm_tensors& t, const Region& packed, const Region& workspace) {
  const auto check = [&](const Region& region) {
    if (region.begin != nullptr && region.bytes > 0) plan.executable->check_memory(region.name, region.begin);
  };
  const Sizes sizes(plan.problem);
  check(region(y_tensor(plan.problem, sizes, t)));
  check(workspace);
  check(packed);
  for (const Tensor& input : input_tensors(plan.problem, sizes, t)) check(region(input));
}

}  // namespace convnorm
