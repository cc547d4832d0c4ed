#include "kernels/cuda/executable.hpp"

#include "descriptor/text.hpp"
#include "kernels/cuda/launch.hpp"

namespace convnorm::cuda {

namespace {

cudaPointerAttributes attributes_of(const void* address) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, address), "asking whose memory a pointer leads to");
  return attributes;
}

bool on_host(const cudaPointerAttributes& attributes) {
  return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
}

// A buffer that lives until the stream has come this far.
class Temporary {
 public:
  Temporary(size_t bytes, cudaStream_t stream) : stream_(stream) {
    check(cudaMallocAsync(&memory_, bytes, stream), "allocating room for a host weight on the device");
  }
  ~Temporary() { cudaFreeAsync(memory_, stream_); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void* memory() const { return memory_; }

 private:
  void* memory_ = nullptr;
  cudaStream_t stream_;
};

// An error of the device names the problem: the stream may have many.
template <class Body>
void naming(const Problem& problem, const Body& body) {
  try {
    body();
  } catch (const Failure& failure) {
    throw Failure(failure.status(), fmt::format("{}; the problem is {}", failure.what(), print_problem(problem)));
  }
}

}  // namespace

CudaExecutable::CudaExecutable(const PlanRequest& request)
    : problem_(request.problem),
      sizes_(request.sizes),
      device_(*request.gpu),
      arguments_(problem_arguments(request.problem, request.sizes)) {}

void CudaExecutable::pack(const void* weight, void* packed, const Launch& launch) const {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  auto* header = static_cast<PackedHeader*>(packed);
  naming(problem_, [&] {
    const DeviceScope scope(device_.ordinal);
    if (on_host(attributes_of(weight))) {
      const auto bytes = static_cast<size_t>(sizes_.w_elements * element_size(problem_.dtype));
      const Temporary copy(bytes, stream);
      check(cudaMemcpyAsync(copy.memory(), weight, bytes, cudaMemcpyHostToDevice, stream),
            "copying a host weight to the device");
      pack_weight(copy.memory(), header + 1, stream);
    } else {
      check_memory("weight", weight);
      pack_weight(weight, header + 1, stream);
    }
    // Last: a packing that was cut short leaves no header that fits.
    write_header(header, launch.fingerprint, stream);
  });
}

void CudaExecutable::run(const convnorm_tensors& tensors, const void* packed, void* workspace,
                         const Launch& launch) const {
  naming(problem_, [&] {
    const DeviceScope scope(device_.ordinal);
    enqueue(call_arguments(arguments_, tensors, packed, launch.fingerprint), workspace,
            static_cast<cudaStream_t>(launch.stream));
  });
}

void CudaExecutable::check_packed(const void* packed, const Launch& launch) const {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const DeviceScope scope(device_.ordinal);
  PackedHeader header{};
  check(cudaMemcpyAsync(&header, packed, sizeof(header), cudaMemcpyDeviceToHost, stream), "reading a packed weight");
  check(cudaStreamSynchronize(stream), "reading a packed weight");
  if (header.fingerprint == launch.fingerprint) return;
  fail(CONVNORM_PACKED_MISMATCH,
       "packed_weight is none, was packed for another plan than of {} on {}, or was copied to an address that is "
       "aligned differently; pack the weight with this plan",
       print_problem(problem_), device_.architecture());
}

void CudaExecutable::check_memory(const char* name, const void* address) const {
  const cudaPointerAttributes attributes = attributes_of(address);
  if (on_host(attributes)) {
    fail(CONVNORM_INVALID_ARGUMENT,
         "{} lies in host memory ({}), but the plan is for device {} ({}); give device memory", name, address,
         device_.ordinal, device_.name);
  }
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device_.ordinal) {
    fail(
        CONVNORM_INVALID_ARGUMENT,
        "{} lies in memory of device {}, but the plan is for device {} ({}); copy it, or plan with that device current",
        name, attributes.device, device_.ordinal, device_.name);
  }
}

}  // namespace convnorm::cuda
