// Everything that a kernel receives about a problem and one call, by value: host and device read the same struct.
#pragma once

#include <cstdint>

#include "descriptor/problem.hpp"

#ifdef __CUDACC__
#define CONVNORM_HOST_DEVICE __host__ __device__
#else
#define CONVNORM_HOST_DEVICE
#endif

namespace convnorm::cuda {

// One op of the list after the norm.
struct PostOp {
  convnorm_op op;
  float param;       // of leaky_relu and elu
  int64_t channels;  // at that point: C_out, or C_out/2 after a glu
};

// Stands at the start of a packed weight. A host cannot read it without waiting for the device, so kernels do.
struct alignas(128) PackedHeader {
  uint64_t fingerprint;
};

struct Arguments {
  // Device memory. Null where the problem has no such tensor.
  const void* x;               // (N, C_in, L) or (N, L, C_in), dtype
  const PackedHeader* packed;  // header, then the weight as the path packs it
  const void* bias;            // (C_out), param_dtype
  const void* gamma;           // (C_out), param_dtype
  const void* beta;            // (C_out), param_dtype
  const int64_t* lengths;      // (N), not checked by the host: read by sample_length()
  const void* pre_slope;       // (1) or (C_out), param_dtype
  const void* post_slope;      // (1) or (channels there), param_dtype
  const void* film_scale;      // (N, channels there), param_dtype
  const void* film_shift;      // (N, channels there), param_dtype
  const void* residual;        // shaped as y, dtype
  void* y;                     // (N, C_y, L_out) or (N, L_out, C_y), dtype
  uint64_t fingerprint;        // that `packed` must carry

  convnorm_dtype dtype;
  convnorm_dtype param_dtype;
  convnorm_layout layout;
  convnorm_padding pad;
  bool pre_slope_per_channel;
  bool post_slope_per_channel;

  int64_t n, c, l, o, k;
  int64_t stride, dilation, pad_left, pad_right;
  int64_t conv_groups, c_per_conv_group, o_per_conv_group;
  int64_t groups, o_per_norm_group;  // 0: no norm
  int64_t l_out, c_y;
  double eps;

  convnorm_op pre;
  int post_count;
  int glu;  // index of the glu among post; post_count without one
  PostOp post[CONVNORM_MAX_POST];

  CONVNORM_HOST_DEVICE const void* packed_weight() const { return packed + 1; }
};

// The part that a plan knows; tensors are null.
inline Arguments problem_arguments(const Problem& p, const Sizes& sizes) {
  Arguments a{};
  a.dtype = p.dtype;
  a.layout = p.layout;
  a.pad = p.pad;
  a.n = p.n, a.c = p.c, a.l = p.l, a.o = p.o, a.k = p.k;
  a.stride = p.stride, a.dilation = p.dilation, a.pad_left = p.pad_left, a.pad_right = p.pad_right;
  a.conv_groups = p.conv_groups;
  a.c_per_conv_group = sizes.c_per_conv_group, a.o_per_conv_group = sizes.o_per_conv_group;
  a.groups = p.groups, a.o_per_norm_group = sizes.o_per_norm_group;
  a.l_out = sizes.l_out, a.c_y = sizes.c_y;
  a.eps = p.eps;
  a.pre = p.pre.op;
  a.post_count = a.glu = p.post_count;
  int64_t channels = p.o;
  for (int i = 0; i < p.post_count; ++i) {
    a.post[i] = {p.post[i].op, static_cast<float>(p.post[i].param), channels};
    if (p.post[i].op != CONVNORM_GLU) continue;
    a.glu = i;
    channels /= 2;
  }
  return a;
}

// With the tensors of one call. `packed` is where the header of the packed weight lies.
inline Arguments call_arguments(Arguments a, const convnorm_tensors& t, const void* packed, uint64_t fingerprint) {
  a.x = t.x;
  a.packed = static_cast<const PackedHeader*>(packed);
  a.bias = t.bias, a.gamma = t.gamma, a.beta = t.beta;
  a.lengths = t.lengths;
  a.pre_slope = t.pre_slope, a.post_slope = t.post_slope;
  a.film_scale = t.film_scale, a.film_shift = t.film_shift;
  a.residual = t.residual;
  a.y = t.y;
  a.fingerprint = fingerprint;
  a.param_dtype = t.param_dtype;
  a.pre_slope_per_channel = t.pre_slope_per_channel != 0;
  a.post_slope_per_channel = t.post_slope_per_channel != 0;
  return a;
}

}  // namespace convnorm::cuda
