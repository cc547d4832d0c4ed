#include "cli/files/input_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "cli/files/tensor.hpp"

namespace convnorm::cli {
namespace fs = std::filesystem;

namespace {

bool is_input(const fs::directory_entry& entry) {
  std::string extension = entry.path().extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  if (extension != ".npy" && extension != ".wav" && extension != ".flac") return false;
  if (entry.path().filename().string().starts_with('.')) return false;
  std::error_code error;
  return entry.is_regular_file(error);
}

}  // namespace

std::vector<fs::path> list_inputs(const fs::path& directory) {
  std::vector<fs::path> inputs;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (is_input(*entry)) inputs.push_back(entry->path());
  }
  if (error) {
    throw FileError(
        fmt::format("{}: cannot be listed ({}); give a readable directory", directory.string(), error.message()));
  }
  if (inputs.empty()) {
    throw FileError(fmt::format("{}: holds no .npy, .wav or .flac file; add one or name a file", directory.string()));
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

}  // namespace convnorm::cli
