// WHAT is asked: the problem as a plain value, its rules, and the sizes that follow from it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "convnorm/convnorm.h"

namespace convnorm {

using Problem = convnorm_problem;

// Thrown inside the library, turned into a status and a thread-local text at the C ABI.
class Failure : public std::runtime_error {
 public:
  Failure(convnorm_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  convnorm_status status() const { return status_; }

 private:
  convnorm_status status_;
};

Problem default_problem();

// Throws Failure(PARSE_ERROR or INVALID_ARGUMENT). The result is valid and canonical.
Problem parse_problem(std::string_view line);

// Throws Failure(INVALID_ARGUMENT) naming the value and the way out. Allocates only the message.
void validate(const Problem& problem);

// Checks what only the call knows: each sample's valid length, of which the problem has n. Throws as validate().
void validate_lengths(const Problem& problem, const int64_t* lengths);

// The same problem with every field that has no meaning in it at its default.
Problem canonical(Problem problem);

// Of a valid problem.
std::string print_problem(const Problem& problem);
bool equal(const Problem& a, const Problem& b);
// FNV-1a, 64 bits, of the canonical line.
uint64_t hash(const Problem& problem);

// Derived sizes of a valid problem; they cannot overflow, because validate() has checked the products.
struct Sizes {
  explicit Sizes(const Problem& p);

  int64_t l_out;             // outputs along L
  int64_t c_y;               // channels of y: C_out, or C_out/2 after a glu
  int64_t c_per_conv_group;  // C_in / conv_groups
  int64_t o_per_conv_group;  // C_out / conv_groups
  int64_t o_per_norm_group;  // C_out / groups; 0 without a norm
  int64_t k_span;            // dilation * (K - 1) + 1: inputs under the kernel
  int64_t x_elements;
  int64_t w_elements;
  int64_t y_elements;
  int64_t z_elements;  // N * C_out * L_out
  double flops;        // 2 * z_elements * C_in/conv_groups * K
};

// L_out for one sample of `length` valid inputs; 0 when the kernel does not fit.
int64_t output_length(const Problem& p, int64_t length);

inline bool has_norm(const Problem& p) { return p.groups > 0; }
inline bool has_affine(const Problem& p) { return p.groups > 0 && p.affine != 0; }
bool has_post(const Problem& p, convnorm_op op);
int64_t element_size(convnorm_dtype dtype);
const char* dtype_name(convnorm_dtype dtype);

}  // namespace convnorm
