// NumPy's .npy files, format versions 1, 2 and 3.
//
// Read: f2 f4 f8, i1 i2 i4 i8, u1 u2 u4 u8 and bool of either byte order, in C or Fortran order (reordered to C), and
// bf16 as the 2-byte void type V2, which is how ml_dtypes stores it. Every other type is refused by name, and so is a
// file that is shorter or longer than its header says.
// Written: version 1, C order, little endian, bf16 as "<V2".
#pragma once

#include <filesystem>

#include "cli/files/tensor.hpp"

namespace convnorm::cli {

Tensor read_npy(const std::filesystem::path& path);

void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace convnorm::cli
