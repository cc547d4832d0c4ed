// What all CUDA paths share: the plan's device made current, the packed weight's header, errors with the problem's
// line.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/arguments.hpp"
#include "plan/plan.hpp"

namespace convnorm::cuda {

class CudaExecutable : public Executable {
 public:
  explicit CudaExecutable(const PlanRequest& request);

  // Header included. `packed` is aligned to 256 bytes here and below.
  size_t packed_bytes() const final { return sizeof(PackedHeader) + packed_weight_bytes(); }
  // `weight` may lie in host memory, which is then copied through a temporary buffer of the stream.
  void pack(const void* weight, void* packed, const Launch& launch) const final;
  void run(const convnorm_tensors& tensors, const void* packed, void* workspace, const Launch& launch) const final;
  void check_packed(const void* packed, const Launch& launch) const final;
  void check_memory(const char* name, const void* address) const final;

 protected:
  virtual size_t packed_weight_bytes() const = 0;
  // w (C_out, C_in/conv_groups, K) in device memory -> what follows the header.
  virtual void pack_weight(const void* weight, void* packed_weight, cudaStream_t stream) const = 0;
  // All of one call. Allocates nothing, waits for nothing, and may be captured.
  virtual void enqueue(const Arguments& arguments, void* workspace, cudaStream_t stream) const = 0;

  Problem problem_;
  Sizes sizes_;
  DeviceLimits device_;

 private:
  Arguments arguments_;
};

// Stream-ordered: writes the header that packed_fault() looks for.
void write_header(PackedHeader* header, uint64_t fingerprint, cudaStream_t stream);

// Stream-ordered: a tensor of `dtype` as fp32, for paths that pack no more than that.
void widen(const void* from, convnorm_dtype dtype, float* to, int64_t elements, cudaStream_t stream);

}  // namespace convnorm::cuda
