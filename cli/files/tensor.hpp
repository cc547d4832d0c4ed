// Tensors as files hold them: an element type, a shape and the bytes.
//
//   Tensor x = read_npy("x.npy");
//   std::vector<float> values = to_float32(x);
//   write_npy("x_bf16.npy", convert(x, ElementType::bf16));
//
// Every function here and in the readers beside it reports a fault as FileError, whose text is one sentence for the
// user of the command line.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace convnorm::cli {

static_assert(std::endian::native == std::endian::little, "tensor data is kept in the byte order of the files");

struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ElementType { f16, bf16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64, boolean };

// C order, little endian.
struct Tensor {
  ElementType type;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

// As many dimensions as NumPy 2 allows; it also bounds what a hostile header makes the readers keep.
inline constexpr size_t kMaxRank = 64;

size_t element_size(ElementType type);

// "f32", "bf16", "bool": the names that messages use.
std::string_view element_name(ElementType type);

// "(2, 3, 4)", "(5,)", "()": the spelling of Python, which the npy format shares.
std::string shape_text(std::span<const int64_t> shape);

// Both refuse negative dimensions, more than kMaxRank of them, and a product over INT64_MAX. Zeros are left out of the
// product that is checked, so that strides derived from an accepted shape cannot overflow either.
int64_t element_count(std::span<const int64_t> shape);
int64_t byte_count(ElementType type, std::span<const int64_t> shape);

// Refuses a tensor whose data is not as long as its type and shape say.
void require_consistent(const Tensor& tensor);

// Rounding is to nearest even, straight from the source value. A target of integers or bool takes only values that it
// holds exactly and refuses the others, because a silent wrap or truncation cannot be seen in the result.
Tensor convert(const Tensor& tensor, ElementType type);
std::vector<float> to_float32(const Tensor& tensor);
std::vector<double> to_float64(const Tensor& tensor);

}  // namespace convnorm::cli
