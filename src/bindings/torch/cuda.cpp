// torch.ops.convnorm on GPUs, in PyTorch's current stream.
#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "bindings/torch/operator.hpp"
#include "bindings/torch/register.hpp"

namespace convnorm_torch {

namespace {

cudaStream_t stream_of(const convnorm_launch& launch) { return static_cast<cudaStream_t>(launch.stream); }

bool capturing(cudaStream_t stream) {
  if (stream == nullptr) return false;  // the default stream cannot be captured
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

convnorm_launch current_stream(int32_t device_index) {
  void* stream = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_index, &stream));
  return {.parallel_for = nullptr, .parallel_context = nullptr, .stream = stream, .on_device = 1};
}

void wait(const convnorm_launch& launch) {
  if (const cudaError_t error = cudaStreamSynchronize(stream_of(launch)); error != cudaSuccess) {
    throw std::runtime_error(std::string("convnorm: packing the weight failed: ") + cudaGetErrorString(error));
  }
}

// On a thread of its own: the caller's may be allocating into the pool of a graph that is being warmed up, which takes
// nothing that outlives the call.
Tensor lasting_bytes(const Tensor& like, size_t bytes, const convnorm_launch& launch) {
  std::optional<Tensor> found;
  std::exception_ptr failure;
  std::thread([&] {
    try {
      CUDAStreamGuardHandle guard = nullptr;
      STABLE_TORCH_ERROR_CODE_CHECK(
          aoti_torch_create_cuda_stream_guard(launch.stream, like.get_device_index(), &guard));
      const std::unique_ptr<CUDAStreamGuardOpaque, void (*)(CUDAStreamGuardHandle)> held(
          guard, [](CUDAStreamGuardHandle each) { aoti_torch_delete_cuda_stream_guard(each); });
      found = new_bytes(like, bytes);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return *found;
}

bool order(void* earlier, void* later) {
  const auto before = static_cast<cudaStream_t>(earlier), after = static_cast<cudaStream_t>(later);
  if (before == after) return true;
  cudaEvent_t event = nullptr;
  if (capturing(before) || capturing(after) ||
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
    return false;
  }
  const bool ordered =
      cudaEventRecord(event, before) == cudaSuccess && cudaStreamWaitEvent(after, event, 0) == cudaSuccess;
  cudaEventDestroy(event);
  return ordered;
}

constexpr Backend kCuda = {
    .device = CONVNORM_CUDA,
    .name = "CUDA",
    .threads = [] { return int32_t{0}; },
    .launch = current_stream,
    .capturing = [](const convnorm_launch& launch) { return capturing(stream_of(launch)); },
    .wait = wait,
    .lasting_bytes = lasting_bytes,
    .order = order,
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(convnorm, CUDA, library) {
  library.impl("conv1d_group_norm", TORCH_BOX(&run<kCuda>));
  library.impl("phases", TORCH_BOX(&run_phases<kCuda>));
  library.impl("path", TORCH_BOX(&path<kCuda>));
}

}  // namespace convnorm_torch
