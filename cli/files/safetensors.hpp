// safetensors: an 8-byte header length, a JSON header, and the tensors' bytes without gaps.
//
// The reader refuses what the format forbids: offsets that disagree with a shape, overlap, leave a hole or leave the
// file, names used twice, unknown keys, and types other than F16 BF16 F32 F64 I8 U8 I16 U16 I32 U32 I64 U64 BOOL.
// A header may have 100,000,000 bytes, the limit of the reference implementation.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "cli/files/tensor.hpp"

namespace convnorm::cli {

struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;  // the entry "__metadata__"
};

SafetensorsFile read_safetensors(const std::filesystem::path& path);

// Larger element types come first, so that every tensor is aligned to its element size within the file.
void write_safetensors(const std::filesystem::path& path, const SafetensorsFile& content);

}  // namespace convnorm::cli
