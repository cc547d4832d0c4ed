// The tensors of a problem: which there are, of what shape, where they come from.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/files/tensor.hpp"
#include "convnorm/convnorm.h"

namespace convnorm::cli {

using TensorMap = std::map<std::string, Tensor>;

// data: in the dtype of the line. parameter: held in f32, whatever the dtype of the line. index: int64.
enum class Kind { data, parameter, index };

struct WantedTensor {
  std::string name;
  std::vector<int64_t> shape;
  Kind kind;
  bool one_will_do;  // a slope may be a single element
};

// In the order x, weight, bias, gamma, beta, lengths, pre_slope, post_slope, film_scale, film_shift, residual.
std::vector<WantedTensor> wanted_tensors(const convnorm_problem& problem);

std::vector<int64_t> output_shape(const convnorm_problem& problem);
inline int channel_axis(const convnorm_problem& problem) { return problem.layout == CONVNORM_NCL ? 1 : 2; }
inline int length_axis(const convnorm_problem& problem) { return problem.layout == CONVNORM_NCL ? 2 : 1; }
ElementType element_type(convnorm_dtype dtype);

// Sets the inputs of a call: data(name) says where the tensor of that name lies, null where there is none.
template <class Data>
void point_to_inputs(convnorm_tensors& t, const Data& data) {
  t.x = data("x");
  t.bias = data("bias");
  t.gamma = data("gamma");
  t.beta = data("beta");
  t.lengths = static_cast<const int64_t*>(data("lengths"));
  t.pre_slope = data("pre_slope");
  t.post_slope = data("post_slope");
  t.film_scale = data("film_scale");
  t.film_shift = data("film_shift");
  t.residual = data("residual");
}

// A problem with all of its inputs.
struct Operands {
  convnorm_problem problem;
  TensorMap tensors;

  // Pointers to the inputs; packed_weight and y are left to the caller.
  convnorm_tensors view() const;
};

// What completing the operands did, for the user to know.
struct Origin {
  std::vector<std::string> drawn;  // names
  std::vector<std::string> notes;  // conversions
};

// Takes `given`, converts it to the types of the problem and draws what is missing from the generator. Throws BadInput
// when a name is unknown or not wanted by the problem, or a shape or type does not fit.
Operands complete(const convnorm_problem& problem, TensorMap given, uint64_t seed, Origin* origin);

// [begin, begin + count) along `axis`.
Tensor cut(const Tensor& tensor, int axis, int64_t begin, int64_t count);

}  // namespace convnorm::cli
