// A directory as input.
#pragma once

#include <filesystem>
#include <vector>

namespace convnorm::cli {

// The .npy, .wav and .flac files in the directory, by byte order of their names. Extensions may be in capitals; hidden
// files and subdirectories are passed over. None at all is a FileError.
std::vector<std::filesystem::path> list_inputs(const std::filesystem::path& directory);

}  // namespace convnorm::cli
