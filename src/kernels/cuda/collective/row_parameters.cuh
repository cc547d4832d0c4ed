// Parameters of a tile's channels. They lie in shared memory: beside 64 accumulators there are no registers for them,
// and what the compiler spills comes back from the second-level cache.
#pragma once

#include "kernels/cuda/collective/ops.cuh"
#include "kernels/cuda/collective/requested.cuh"
#include "kernels/cuda/epilogue.cuh"

namespace convnorm::cuda {

// Of one channel.
struct alignas(16) RowParameters {
  float gamma;
  float beta;  // NaN if the packed weight is not this plan's
  // What the norm does not take out again: the bias beyond that of the group's first channel. It moves the row's mean
  // and is never added to its values, where a large one would cost digits; so means are taken as if that bias were 0.
  float bias;
  float unused;
};

// [64 * blocks]
template <class Parameters>
__device__ __forceinline__ RowParameters* row_parameters(const Parameters& p, unsigned char* shared) {
  return reinterpret_cast<RowParameters*>(shared + p.plan.rows);
}

// Those of one channel on their way: several loads at once, none of which is waited for before value().
template <class T>
class RequestedRow {
 public:
  // Past the last channel there is nothing to load.
  __device__ __forceinline__ RequestedRow(const typename T::Parameters& p, int channel) : a_(p.arguments) {
    ptx::load_64(&a_.packed->fingerprint, true, fingerprint_[0], fingerprint_[1]);
    inside_ = channel < a_.o;
    gamma_.request(a_.gamma, channel, a_.param_dtype, inside_);
    beta_.request(a_.beta, channel, a_.param_dtype, inside_);
    const void* bias = a_.pre == CONVNORM_NONE ? a_.bias : nullptr;
    bias_.request(bias, channel, a_.param_dtype, inside_);
    const int64_t first = int64_t{p.config.group_rows.divide(channel)} * p.config.group_rows.value;
    group_bias_.request(bias, first, a_.param_dtype, inside_ && a_.groups > 0);
  }

  __device__ __forceinline__ RowParameters value() const {
    const bool fault = (uint64_t{fingerprint_[1]} << 32 | fingerprint_[0]) != a_.fingerprint;
    const float bias = bias_.value(a_.param_dtype);
    RowParameters own;
    own.gamma = inside_ && a_.gamma != nullptr ? gamma_.value(a_.param_dtype) : 1.0f;
    own.beta = beta_.value(a_.param_dtype) + (a_.groups > 0 ? 0.0f : bias);
    if (fault) own.beta = __int_as_float(0x7fffffff);
    own.bias = bias - group_bias_.value(a_.param_dtype);
    own.unused = 0.0f;
    return own;
  }

 private:
  const Arguments& a_;
  bool inside_;
  uint32_t fingerprint_[2];
  Requested<typename T::Element> gamma_, beta_, bias_, group_bias_;
};

// Loads rows [begin, end) of a tile that starts at channel `first`, by threads `thread` of `threads`.
template <class T>
__device__ __forceinline__ void load_row_parameters(const typename T::Parameters& p, unsigned char* shared, int first,
                                                    int begin, int end, int thread, int threads) {
#pragma unroll 1
  for (int row = begin + thread; row < end; row += threads) {
    row_parameters(p, shared)[row] = RequestedRow<T>(p, first + row).value();
  }
}

}  // namespace convnorm::cuda
