// Where x comes from: .npy, .wav and .flac files, one or a directory of them.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/files/tensor.hpp"

namespace convnorm::cli {

// Audio becomes (1, channels, samples), or (1, samples, channels) with `channels_last`; npy files stay as they are.
Tensor read_x(const std::filesystem::path& path, bool channels_last);

struct FilePair {
  std::filesystem::path input;
  std::filesystem::path output;
};

// One pair for a file; for a directory one for each of its inputs by name, with outputs <stem>.npy in the directory
// `output`, which is created. Throws BadInput where two inputs would share an output.
std::vector<FilePair> pair_files(const std::filesystem::path& input, const std::filesystem::path& output);

}  // namespace convnorm::cli
