#include "bindings/torch/operator.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bindings/torch/phases.hpp"
#include "bindings/torch/plans.hpp"
#include "bindings/torch/weights.hpp"

namespace convnorm_torch {

namespace {

using torch::headeronly::ScalarType;

[[noreturn]] void refuse(const std::string& sentence) { throw std::runtime_error("convnorm: " + sentence); }

std::string name_of(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Half:
      return "float16";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Double:
      return "float64";
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Char:
      return "int8";
    case ScalarType::Short:
      return "int16";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Bool:
      return "bool";
    case ScalarType::ComplexFloat:
      return "complex64";
    case ScalarType::ComplexDouble:
      return "complex128";
    default:
      return torch::headeronly::toString(type);
  }
}

std::string shape_of(const Tensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.sizes()) text += (text.empty() ? "(" : ", ") + std::to_string(size);
  return text.empty() ? "()" : text + ")";
}

std::string device_of(const Tensor& tensor) {
  if (tensor.is_cpu()) return "cpu";
  return (tensor.is_cuda() ? "cuda:" : "device ") + std::to_string(tensor.get_device_index());
}

convnorm_dtype io_dtype(const Tensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Float:
      return CONVNORM_F32;
    case ScalarType::Half:
      return CONVNORM_F16;
    case ScalarType::BFloat16:
      return CONVNORM_BF16;
    default:
      refuse("x has dtype " + name_of(x.scalar_type()) +
             ", but the operator computes float32, float16 and bfloat16; convert x" +
             (x.scalar_type() == ScalarType::Double
                  ? ", or call convnorm.functional.conv1d_group_norm, which composes float64 of PyTorch's operators"
                  : ""));
  }
}

void check_device(const char* name, const Tensor& tensor, const Tensor& x) {
  if (tensor.is_cpu() != x.is_cpu() || tensor.get_device_index() != x.get_device_index()) {
    refuse(std::string(name) + " is on " + device_of(tensor) + ", but x is on " + device_of(x) +
           "; move them to one device");
  }
}

// PyTorch chooses the backend by any of the tensors; refused is x where the others are of another kind.
void check_kind(const Backend& backend, const Inputs& in) {
  const auto of_kind = [&](const Tensor& tensor) { return tensor.is_cpu() == (backend.device == CONVNORM_CPU); };
  if (of_kind(in.x)) return;
  if (of_kind(in.weight)) check_device("weight", in.weight, in.x);
  const std::pair<const char*, const OptionalTensor*> others[] = {
      {"bias", &in.bias},
      {"gamma", &in.gamma},
      {"beta", &in.beta},
      {"lengths", &in.lengths},
      {"pre_slope", &in.pre_slope},
      {"post_slope", &in.post_slope},
      {"film_scale", &in.film_scale},
      {"film_shift", &in.film_shift},
      {"residual", &in.residual},
  };
  for (const auto& [name, tensor] : others) {
    if (*tensor && of_kind(**tensor)) check_device(name, **tensor, in.x);
  }
  refuse("x is on " + device_of(in.x) + ", but " + backend.name + " was to compute it; move all tensors to one device");
}

void check_shape(const char* name, const Tensor& tensor, std::initializer_list<int64_t> wanted) {
  const auto sizes = tensor.sizes();
  if (std::equal(sizes.begin(), sizes.end(), wanted.begin(), wanted.end())) return;
  std::string text;
  for (const int64_t size : wanted) text += (text.empty() ? "(" : ", ") + std::to_string(size);
  refuse(std::string(name) + " has the shape " + shape_of(tensor) + ", but the problem needs " + text + ")");
}

void check_rank_3(const char* name, const Tensor& tensor, const char* axes) {
  if (tensor.dim() != 3) {
    refuse(std::string(name) + " has the shape " + shape_of(tensor) + ", but " + name + " must have three axes, " +
           axes);
  }
}

Tensor dense(const Tensor& tensor) { return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor); }

// Both, dense, by one copy, where `second` lies in the rows of `first`, behind it: the two halves of one tensor.
OptionalTensor dense_pair(const Tensor& first, const Tensor& second) {
  const int64_t rows = first.size(0), columns = first.size(1), step = first.stride(0);
  if (rows < 2 || second.scalar_type() != first.scalar_type() || second.stride(0) != step || first.stride(1) != 1 ||
      second.stride(1) != 1) {
    return std::nullopt;
  }
  const auto bytes =
      static_cast<const char*>(second.const_data_ptr()) - static_cast<const char*>(first.const_data_ptr());
  const auto element = static_cast<int64_t>(first.element_size());
  if (bytes <= 0 || bytes % element != 0 || bytes / element + columns > step) return std::nullopt;
  const std::array<int64_t, 3> sizes = {2, rows, columns}, strides = {bytes / element, step, 1};
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch__reinterpret_tensor(first.get(), 3, sizes.data(), strides.data(), 0, &handle));
  return torch::stable::contiguous(Tensor(handle));
}

bool channels_last(const std::string& attributes) { return attributes.find("layout=nlc") != std::string::npos; }

PlanCache& plan_cache() {
  static PlanCache& cache = *new PlanCache;
  return cache;
}

std::shared_ptr<const Plan> plan_for(const Backend& backend, const Inputs& in) {
  check_rank_3("x", in.x, channels_last(in.attributes) ? "(N, L, C_in)" : "(N, C_in, L)");
  check_rank_3("weight", in.weight, in.phases ? "(C_in, C_out, K)" : "(C_out, C_in/groups, K)");
  check_kind(backend, in);
  if (in.gamma.has_value() != in.beta.has_value()) {
    refuse(std::string(in.gamma ? "gamma is given without beta" : "beta is given without gamma") +
           "; give both or none");
  }
  const bool nlc = channels_last(in.attributes);
  const auto [o, c_per_group, k] = in.phases ? shape_of_phases(*in.phases, in.weight)
                                             : std::array{in.weight.size(0), in.weight.size(1), in.weight.size(2)};
  auto plan = plan_cache().find_or_create({.attributes = in.attributes,
                                           .n = in.x.size(0),
                                           .c = in.x.size(nlc ? 2 : 1),
                                           .l = in.x.size(nlc ? 1 : 2),
                                           .o = o,
                                           .k = k,
                                           .dtype = io_dtype(in.x),
                                           .bias = in.bias.has_value(),
                                           .affine = in.gamma.has_value(),
                                           .lengths = in.lengths.has_value(),
                                           .device = backend.device,
                                           .device_index = in.x.get_device_index(),
                                           .threads = backend.threads()});
  check_device("weight", in.weight, in.x);
  const ScalarType type = in.weight.scalar_type();
  if (type != in.x.scalar_type() && type != ScalarType::Float) {
    refuse("weight has dtype " + name_of(type) + ", but x has " + name_of(in.x.scalar_type()) +
           "; give weight that dtype, or float32, which is rounded when the weight is packed");
  }
  if (const int64_t taken = c_per_group * plan->problem.conv_groups; taken != plan->problem.c) {
    refuse("x " + shape_of(in.x) + " has " + std::to_string(plan->problem.c) + " channels, but weight " +
           shape_of(in.weight) + " with groups=" + std::to_string(plan->problem.conv_groups) + " takes " +
           std::to_string(taken));
  }
  return plan;
}

std::array<int64_t, 3> y_shape(const Plan& plan) {
  const convnorm_problem& p = plan.problem;
  return p.layout == CONVNORM_NLC ? std::array{p.n, plan.l_out, plan.c_y} : std::array{p.n, plan.c_y, plan.l_out};
}

// The tensors of one call as the library wants them: dense, parameters of one dtype. Holds copies where it had to make
// some.
class Arguments {
 public:
  Arguments(const Plan& plan, const Inputs& in) : plan_(plan), x_(in.x) {
    const convnorm_problem& p = plan.problem;
    const OptionalTensor* parameters[] = {&in.bias,       &in.gamma,      &in.beta,      &in.pre_slope,
                                          &in.post_slope, &in.film_scale, &in.film_shift};
    const bool as_x = std::ranges::all_of(
        parameters, [&](const OptionalTensor* each) { return !*each || (*each)->scalar_type() == in.x.scalar_type(); });
    parameter_type_ = as_x ? in.x.scalar_type() : ScalarType::Float;
    tensors.param_dtype = as_x ? p.dtype : CONVNORM_F32;

    tensors.x = keep(dense(in.x));
    tensors.bias = parameter("bias", in.bias, {p.o});
    tensors.gamma = parameter("gamma", in.gamma, {p.o});
    tensors.beta = parameter("beta", in.beta, {p.o});
    tensors.pre_slope = slope("pre_slope", in.pre_slope, p.o, tensors.pre_slope_per_channel);
    const int64_t prelu_channels = channels_at(CONVNORM_PRELU);
    tensors.post_slope = slope("post_slope", in.post_slope, prelu_channels, tensors.post_slope_per_channel);
    film(in.film_scale, in.film_shift);
    if (in.residual) {
      typed("residual", *in.residual, in.x.scalar_type());
      const auto [n, second, third] = y_shape(plan);
      check_shape("residual", *in.residual, {n, second, third});
      tensors.residual = keep(dense(*in.residual));
    }
    if (in.lengths) {
      typed("lengths", *in.lengths, ScalarType::Long);
      check_shape("lengths", *in.lengths, {p.n});
      tensors.lengths = static_cast<const int64_t*>(keep(dense(*in.lengths)));
    }
  }

  convnorm_tensors tensors{};

 private:
  // Channels where `op` stands in the list of post operations: a glu before it has halved them.
  int64_t channels_at(convnorm_op op) const {
    const convnorm_problem& p = plan_.problem;
    int64_t channels = p.o;
    for (int i = 0; i < p.post_count && p.post[i].op != op; ++i) {
      if (p.post[i].op == CONVNORM_GLU) channels /= 2;
    }
    return channels;
  }

  const void* keep(Tensor tensor) {
    const void* data = tensor.const_data_ptr();
    kept_[count_++] = std::move(tensor);
    return data;
  }

  void typed(const char* name, const Tensor& tensor, ScalarType wanted) const {
    check_device(name, tensor, x_);
    if (tensor.scalar_type() != wanted) {
      refuse(std::string(name) + " has dtype " + name_of(tensor.scalar_type()) + ", but it must have " +
             name_of(wanted) + "; convert " + name);
    }
  }

  void check_parameter(const char* name, const Tensor& given, std::initializer_list<int64_t> wanted) const {
    check_device(name, given, x_);
    check_shape(name, given, wanted);
    const ScalarType type = given.scalar_type();
    if (type != ScalarType::Float && type != x_.scalar_type()) {
      refuse(std::string(name) + " has dtype " + name_of(type) + ", but x has " + name_of(x_.scalar_type()) +
             "; parameters have that dtype or float32");
    }
  }

  const void* parameter(const char* name, const OptionalTensor& given, std::initializer_list<int64_t> wanted) {
    if (!given) return nullptr;
    check_parameter(name, *given, wanted);
    return keep(dense(given->scalar_type() == parameter_type_ ? *given : torch::stable::to(*given, parameter_type_)));
  }

  void film(const OptionalTensor& scale, const OptionalTensor& shift) {
    const int64_t n = plan_.problem.n, channels = channels_at(CONVNORM_FILM);
    if (scale && shift) {
      check_parameter("film_scale", *scale, {n, channels});
      check_parameter("film_shift", *shift, {n, channels});
      if (scale->scalar_type() == parameter_type_) {
        if (const auto both = dense_pair(*scale, *shift)) {
          tensors.film_scale = keep(torch::stable::select(*both, 0, 0));
          tensors.film_shift = keep(torch::stable::select(*both, 0, 1));
          return;
        }
      }
    }
    tensors.film_scale = parameter("film_scale", scale, {n, channels});
    tensors.film_shift = parameter("film_shift", shift, {n, channels});
  }

  const void* slope(const char* name, const OptionalTensor& given, int64_t channels, int32_t& per_channel) {
    if (!given) return nullptr;
    per_channel = given->numel() != 1 || channels == 1;
    return parameter(name, given, {per_channel ? channels : 1});
  }

  const Plan& plan_;
  const Tensor& x_;
  ScalarType parameter_type_ = ScalarType::Float;
  std::array<OptionalTensor, 10> kept_;
  size_t count_ = 0;
};

Tensor new_y(const Plan& plan, const Tensor& x) {
  const std::array<int64_t, 3> sizes = y_shape(plan);
  const std::array<int64_t, 3> strides = {sizes[1] * sizes[2], sizes[2], 1};
  int32_t dtype = 0;
  int32_t device_type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(x.get(), &device_type));
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(3, sizes.data(), strides.data(), dtype, device_type, x.get_device_index(), &handle));
  return Tensor(handle);
}

// Scratch of one call. On CPUs a thread keeps its own up to a size that any cache holds; a GPU's comes from PyTorch's
// allocator, which hands it on in the order of the stream.
class Workspace {
 public:
  Workspace(const Plan& plan, const Tensor& x) {
    if (plan.workspace_bytes == 0) return;
    if (x.is_cpu() && plan.workspace_bytes <= kKept) {
      static thread_local std::unique_ptr<char[]> kept;
      static thread_local size_t bytes = 0;
      if (bytes < plan.workspace_bytes) {
        kept = std::make_unique_for_overwrite<char[]>(plan.workspace_bytes);
        bytes = plan.workspace_bytes;
      }
      data_ = kept.get();
    } else {
      tensor_ = new_bytes(x, plan.workspace_bytes);
      data_ = tensor_->mutable_data_ptr();
    }
  }

  void* data() const { return data_; }

 private:
  static constexpr size_t kKept = 4u << 20;
  OptionalTensor tensor_;
  void* data_ = nullptr;
};

// Plans are made for the current device, and PyTorch's stream belongs to x's.
std::optional<torch::stable::accelerator::DeviceGuard> on_device_of(const Tensor& x) {
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if (x.is_cuda() && x.get_device_index() != torch::stable::accelerator::getCurrentDeviceIndex()) {
    guard.emplace(x.get_device_index());
  }
  return guard;
}

}  // namespace

Tensor conv1d_group_norm(const Backend& backend, Inputs in) {
  const auto guard = on_device_of(in.x);
  const std::shared_ptr<const Plan> plan = plan_for(backend, in);
  Arguments arguments(*plan, in);
  Tensor y = new_y(*plan, in.x);
  if (y.numel() == 0) return y;
  const convnorm_launch launch = backend.launch(in.x.get_device_index());
  const PackedWeight packed = weight_cache().packed(backend, launch, in.weight_id, plan, in.weight, in.phases);
  const Workspace workspace(*plan, in.x);
  arguments.tensors.packed_weight = packed.bytes.const_data_ptr();
  arguments.tensors.y = y.mutable_data_ptr();
  const convnorm_plan* chosen = packed.dependent != nullptr ? packed.dependent->handle : plan->handle;
  expect_ok(convnorm_execute(chosen, &arguments.tensors, workspace.data(), plan->workspace_bytes, &launch));
  return y;
}

std::string chosen_path(const Backend& backend, Inputs in) {
  const auto guard = on_device_of(in.x);
  const std::shared_ptr<const Plan> plan = plan_for(backend, in);
  return std::string(convnorm_plan_path(plan->handle)) + " on " + convnorm_plan_target(plan->handle);
}

}  // namespace convnorm_torch
