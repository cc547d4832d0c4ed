// torch.ops.convnorm: the definitions, and what runs on CPUs in PyTorch's own thread pool.
#include "bindings/torch/operator.hpp"
#include "bindings/torch/register.hpp"
#include "bindings/torch/weights.hpp"

namespace convnorm_torch {

namespace {

// Calls that come from inside another parallel region run on the calling thread, as PyTorch's own do.
void parallel_for(void*, int32_t count, void (*body)(void* argument, int32_t index), void* argument) {
  torch::stable::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(argument, static_cast<int32_t>(i));
  });
}

constexpr Backend kCpu = {
    .device = CONVNORM_CPU,
    .name = "CPU",
    .threads = [] { return static_cast<int32_t>(torch::stable::get_num_threads()); },
    .launch =
        [](int32_t) {
          return convnorm_launch{
              .parallel_for = parallel_for, .parallel_context = nullptr, .stream = nullptr, .on_device = 0};
        },
    .capturing = [](const convnorm_launch&) { return false; },
    .wait = [](const convnorm_launch&) {},
    .lasting_bytes = [](const Tensor& like, size_t bytes, const convnorm_launch&) { return new_bytes(like, bytes); },
    .order = [](void*, void*) { return true; },
};

void forget_weight(int64_t id) { weight_cache().forget(id); }

void forget_packed(std::vector<Tensor> weights) { weight_cache().forget(weights); }

void release_weight(int64_t id) { weight_cache().release(id); }

std::string info() {
  size_t needed = 0;
  expect_ok(convnorm_info(CONVNORM_TEXT, nullptr, 0, &needed));
  std::string text(needed, '\0');
  expect_ok(convnorm_info(CONVNORM_TEXT, text.data(), text.size(), &needed));
  text.pop_back();
  return text;
}

}  // namespace

// `attributes` is a problem line (docs/problem-line.md) without what the tensors say by themselves: n, c, l, o, k,
// bias, affine, lengths, dtype.
//   x (N, C_in, L), or (N, L, C_in) with layout=nlc     weight (C_out, C_in/groups, K)
//   bias, gamma, beta (C_out)                           lengths (N), int64
//   pre_slope, post_slope (1) or (channels)             film_scale, film_shift (N, channels)
//   residual, as the result: (N, C_y, L_out), or (N, L_out, C_y)
// A `weight_id` other than 0 keeps the packed weight under that number until release_weight, for modules whose weight
// stays; see WeightCache.
STABLE_TORCH_LIBRARY(convnorm, library) {
  library.def(
      "conv1d_group_norm(Tensor x, Tensor weight, Tensor? bias, Tensor? gamma, Tensor? beta, str attributes, "
      "int weight_id=0, Tensor? lengths=None, Tensor? pre_slope=None, Tensor? post_slope=None, Tensor? "
      "film_scale=None, "
      "Tensor? film_shift=None, Tensor? residual=None) -> Tensor");
  library.def(
      "path(Tensor x, Tensor weight, Tensor? bias, Tensor? gamma, Tensor? beta, str attributes, "
      "int weight_id=0, Tensor? lengths=None, Tensor? pre_slope=None, Tensor? post_slope=None, Tensor? "
      "film_scale=None, "
      "Tensor? film_shift=None, Tensor? residual=None) -> str");
  // A transposed convolution's results, its channels' `stride` positions between two inputs as channels of their own:
  // x (N, C_in, L), weight (C_in, C_out, K) -> (N, C_out * stride, positions). See phases.hpp.
  library.def(
      "phases(Tensor x, Tensor weight, str attributes, int stride, int left, int taps, int weight_id=0) -> Tensor");
  library.def("forget_weight(int weight_id) -> ()");
  library.def("forget_packed(Tensor[] weights) -> ()");
  library.def("release_weight(int weight_id) -> ()");
  library.def("info() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(convnorm, CPU, library) {
  library.impl("conv1d_group_norm", TORCH_BOX(&run<kCpu>));
  library.impl("phases", TORCH_BOX(&run_phases<kCpu>));
  library.impl("path", TORCH_BOX(&path<kCpu>));
}

STABLE_TORCH_LIBRARY_IMPL(convnorm, CompositeExplicitAutograd, library) {
  library.impl("forget_weight", TORCH_BOX(&forget_weight));
  library.impl("forget_packed", TORCH_BOX(&forget_packed));
  library.impl("release_weight", TORCH_BOX(&release_weight));
  library.impl("info", TORCH_BOX(&info));
}

}  // namespace convnorm_torch
