// convnorm in C++20: handles that own what they hold, spans whose sizes are checked, exceptions for failures.
//
//     convnorm::Plan plan(convnorm::Problem("n=16,c=128,l=1024,o=256,k=3,p=1,g=32,post=silu"));
//     convnorm::PackedWeight weight = plan.pack<float>(w);
//     convnorm::AlignedBuffer workspace(plan.workspace_size());
//     plan.execute<float>(weight, {.x = x, .gamma = gamma, .beta = beta, .y = y}, workspace);
//
// Header-only over convnorm.h, which has the formula, the shapes and the meaning of every field. Everything that can
// fail throws convnorm::Error. A Problem is a value; a Plan and a PackedWeight are immutable and may be shared by any
// number of threads; a workspace belongs to one call at a time.
#pragma once

#include <convnorm/convnorm.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace convnorm {
// The version of this header is part of every name it defines, so that objects built against two versions can be linked
// into one program.
inline namespace v0 {

// ---- Failures ----------------------------------------------------------------------------------------------------

// what() is one sentence that names the value at fault and the way out.
class Error : public std::runtime_error {
 public:
  Error(convnorm_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  convnorm_status status() const noexcept { return status_; }

 private:
  convnorm_status status_;
};

namespace internal {

inline void check(convnorm_status status) {
  if (status != CONVNORM_OK) throw Error(status, convnorm_last_error());
}

// Runs a function of the C interface that hands out text: once for its size, once for itself.
template <class Print>
std::string text(Print print) {
  std::size_t size = 0;
  check(print(nullptr, 0, &size));
  std::string result(size, '\0');
  check(print(result.data(), result.size(), nullptr));
  result.pop_back();  // the final zero
  return result;
}

}  // namespace internal

// ---- Element types -----------------------------------------------------------------------------------------------

// The bits of a 16-bit floating-point number. Any type of yours with the same bits can be viewed as one.
enum class float16 : std::uint16_t {};
enum class bfloat16 : std::uint16_t {};

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

template <Element T>
inline constexpr convnorm_dtype dtype_of = std::same_as<T, float>     ? CONVNORM_F32
                                           : std::same_as<T, float16> ? CONVNORM_F16
                                                                      : CONVNORM_BF16;

// ---- Describe ----------------------------------------------------------------------------------------------------

// A valid problem.
class Problem {
 public:
  // From a line such as "n=1,c=512,l=16,o=512,k=5,p=2,g=8,bias=1,post=mish+film".
  explicit Problem(const std::string& line) { internal::check(convnorm_problem_parse(line.c_str(), &value_)); }

  // From the C struct, whose fields convnorm_problem_init() sets to their defaults.
  explicit Problem(const convnorm_problem& value) : value_(value) {
    internal::check(convnorm_problem_validate(&value_));
  }

  const convnorm_problem& get() const noexcept { return value_; }

  // The canonical line.
  std::string to_string() const {
    return internal::text([this](char* buffer, std::size_t capacity, std::size_t* needed) {
      return convnorm_problem_print(&value_, buffer, capacity, needed);
    });
  }

  std::uint64_t hash() const noexcept { return convnorm_problem_hash(&value_); }
  friend bool operator==(const Problem& a, const Problem& b) noexcept {
    return convnorm_problem_equal(&a.value_, &b.value_) != 0;
  }

  std::int64_t output_length() const noexcept { return convnorm_problem_output_length(&value_); }
  std::int64_t output_channels() const noexcept { return convnorm_problem_output_channels(&value_); }

  // Elements of each tensor.
  std::size_t x_size() const noexcept { return count(value_.n * value_.c * value_.l); }
  std::size_t weight_size() const noexcept { return count(value_.o * (value_.c / value_.conv_groups) * value_.k); }
  std::size_t y_size() const noexcept { return count(value_.n * output_channels() * output_length()); }

  // Channels that `op` sees: C_out, or half of it after a glu.
  std::int64_t channels_at(convnorm_op op) const noexcept {
    std::int64_t channels = value_.o;
    for (const convnorm_stage& stage : std::span(value_.post).first(count(value_.post_count))) {
      if (stage.op == op) break;
      if (stage.op == CONVNORM_GLU) channels /= 2;
    }
    return channels;
  }

 private:
  static std::size_t count(std::int64_t elements) noexcept { return static_cast<std::size_t>(elements); }

  convnorm_problem value_;
};

// ---- Memory ------------------------------------------------------------------------------------------------------

// Uninitialised memory that starts on a cache line. Move-only.
class AlignedBuffer {
 public:
  static constexpr std::align_val_t kAlignment{64};

  explicit AlignedBuffer(std::size_t bytes) : data_(::operator new(bytes, kAlignment)), size_(bytes) {}

  void* data() noexcept { return data_.get(); }
  const void* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { ::operator delete(memory, kAlignment); }
  };

  std::unique_ptr<void, Free> data_;
  std::size_t size_;
};

// A weight in the order in which its plan's path reads it. Made by Plan::pack. Move-only.
class PackedWeight {
 public:
  const void* data() const noexcept { return buffer_.data(); }
  std::size_t size() const noexcept { return buffer_.size(); }

 private:
  friend class Plan;
  explicit PackedWeight(std::size_t bytes) : buffer_(bytes) {}

  AlignedBuffer buffer_;
};

// ---- Plan, pack, execute -----------------------------------------------------------------------------------------

// The tensors of one call, dense; empty where the problem does not have them. T is the problem's type, P that of the
// parameters: float or T. Shapes: convnorm.h.
template <Element T, Element P = float>
struct Tensors {
  std::span<const T> x = {};
  std::span<const P> bias = {};
  std::span<const P> gamma = {};
  std::span<const P> beta = {};
  std::span<const std::int64_t> lengths = {};
  std::span<const P> pre_slope = {};   // one element, or one per channel
  std::span<const P> post_slope = {};  // likewise
  std::span<const P> film_scale = {};
  std::span<const P> film_shift = {};
  std::span<const T> residual = {};
  std::span<T> y = {};
};

// On a GPU spans and buffers of this header, which are host memory, do not serve, and pack and execute refuse: call
// convnorm_pack_weight and convnorm_execute of convnorm.h with get().
struct PlanOptions {
  convnorm_device device = CONVNORM_CPU;
  int threads = 0;          // 0: as many as the default pool has
  std::string path = {};    // empty: the one that is expected to be the fastest
  std::string target = {};  // empty: the best instruction set of this machine
  bool constant_weights = false;  // the promise of convnorm_plan_options::constant_weights
};

// How one problem is computed. Move-only.
class Plan {
 public:
  explicit Plan(const Problem& problem, const PlanOptions& options = {})
      : problem_(problem), device_(options.device) {
    const convnorm_plan_options c_options{.device = options.device,
                                          .threads = options.threads,
                                          .path = options.path.empty() ? nullptr : options.path.c_str(),
                                          .target = options.target.empty() ? nullptr : options.target.c_str(),
                                          .constant_weights = options.constant_weights};
    convnorm_plan* plan = nullptr;
    internal::check(convnorm_plan_create(&problem.get(), &c_options, &plan));
    plan_.reset(plan);
  }

  const Problem& problem() const noexcept { return problem_; }
  std::string_view path() const noexcept { return convnorm_plan_path(plan_.get()); }
  std::string_view target() const noexcept { return convnorm_plan_target(plan_.get()); }
  std::size_t workspace_size() const noexcept { return convnorm_plan_workspace_size(plan_.get()); }
  const convnorm_plan* get() const noexcept { return plan_.get(); }

  // Choice, refusals, costs and guarantees; with a machine also the floor.
  std::string explain(convnorm_format format = CONVNORM_TEXT, const convnorm_machine* machine = nullptr) const {
    return internal::text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return convnorm_plan_explain(plan_.get(), machine, format, buffer, capacity, needed);
    });
  }

  // w (C_out, C_in/conv_groups, K).
  template <Element T>
  PackedWeight pack(std::span<const T> weight, const convnorm_launch* launch = nullptr) const {
    check_device();
    check_type<T>();
    check_size("weight", weight.size(), problem_.weight_size());
    PackedWeight packed(convnorm_plan_packed_size(plan_.get()));
    internal::check(convnorm_pack_weight(plan_.get(), weight.data(), packed.buffer_.data(), packed.size(), launch));
    return packed;
  }

  // Computes tensors.y. Allocates nothing. `launch` may bring a thread pool.
  template <Element T, Element P = float>
  void execute(const PackedWeight& weight, const Tensors<T, P>& tensors, AlignedBuffer& workspace,
               const convnorm_launch* launch = nullptr) const {
    check_device();
    check_type<T>();
    const convnorm_problem& p = problem_.get();
    const std::size_t outputs = static_cast<std::size_t>(p.o);
    const std::size_t film = static_cast<std::size_t>(p.n * problem_.channels_at(CONVNORM_FILM));
    check_size("x", tensors.x.size(), problem_.x_size());
    check_size("y", tensors.y.size(), problem_.y_size());
    check_if_given("bias", tensors.bias.size(), outputs);
    check_if_given("gamma", tensors.gamma.size(), outputs);
    check_if_given("beta", tensors.beta.size(), outputs);
    check_if_given("lengths", tensors.lengths.size(), static_cast<std::size_t>(p.n));
    check_if_given("film_scale", tensors.film_scale.size(), film);
    check_if_given("film_shift", tensors.film_shift.size(), film);
    check_if_given("residual", tensors.residual.size(), problem_.y_size());
    const convnorm_tensors c_tensors{
        .x = tensors.x.data(),
        .packed_weight = weight.data(),
        .bias = tensors.bias.data(),
        .gamma = tensors.gamma.data(),
        .beta = tensors.beta.data(),
        .lengths = tensors.lengths.data(),
        .pre_slope = tensors.pre_slope.data(),
        .post_slope = tensors.post_slope.data(),
        .film_scale = tensors.film_scale.data(),
        .film_shift = tensors.film_shift.data(),
        .residual = tensors.residual.data(),
        .y = tensors.y.data(),
        .pre_slope_per_channel = per_channel("pre_slope", tensors.pre_slope.size(), outputs),
        .post_slope_per_channel = per_channel("post_slope", tensors.post_slope.size(),
                                              static_cast<std::size_t>(problem_.channels_at(CONVNORM_PRELU))),
        .param_dtype = dtype_of<P>,
    };
    internal::check(convnorm_execute(plan_.get(), &c_tensors, workspace.data(), workspace.size(), launch));
  }

 private:
  struct Destroy {
    void operator()(convnorm_plan* plan) const noexcept { convnorm_plan_destroy(plan); }
  };

  void check_device() const {
    if (device_ == CONVNORM_CPU) return;
    throw Error(CONVNORM_INVALID_ARGUMENT,
                "the plan is for a GPU, and the buffers of convnorm.hpp are host memory; call convnorm_pack_weight and "
                "convnorm_execute with Plan::get() and device memory");
  }

  template <Element T>
  void check_type() const {
    if (dtype_of<T> != problem_.get().dtype) {
      throw Error(CONVNORM_INVALID_ARGUMENT,
                  "the element type of the call is not the dtype of " + problem_.to_string() + "; use the problem's");
    }
  }

  static void check_size(const char* name, std::size_t size, std::size_t wanted) {
    if (size == wanted) return;
    throw Error(CONVNORM_INVALID_ARGUMENT, std::string(name) + " has " + std::to_string(size) +
                                               " elements, but the problem needs " + std::to_string(wanted));
  }

  static void check_if_given(const char* name, std::size_t size, std::size_t wanted) {
    if (size != 0) check_size(name, size, wanted);
  }

  static std::int32_t per_channel(const char* name, std::size_t size, std::size_t channels) {
    if (size > 1) check_size(name, size, channels);
    return size > 1;
  }

  Problem problem_;
  convnorm_device device_;
  std::unique_ptr<convnorm_plan, Destroy> plan_;
};

// ---- Machine -----------------------------------------------------------------------------------------------------

inline std::string_view version() noexcept { return convnorm_version(); }

// Version, instruction sets, threads, devices.
inline std::string info(convnorm_format format = CONVNORM_TEXT) {
  return internal::text([format](char* buffer, std::size_t capacity, std::size_t* needed) {
    return convnorm_info(format, buffer, capacity, needed);
  });
}

}  // namespace v0
}  // namespace convnorm
