#include "cli/inputs.hpp"

#include <fmt/format.h>

#include <map>

#include "cli/failure.hpp"
#include "cli/files/audio.hpp"
#include "cli/files/input_file.hpp"
#include "cli/files/input_list.hpp"
#include "cli/files/npy.hpp"

namespace convnorm::cli {
namespace fs = std::filesystem;

namespace {

Tensor transpose_audio(const Tensor& ncl) {
  const size_t channels = static_cast<size_t>(ncl.shape[1]), samples = static_cast<size_t>(ncl.shape[2]);
  Tensor nlc{ncl.type, {1, ncl.shape[2], ncl.shape[1]}, std::vector<std::byte>(ncl.data.size())};
  const float* const from = reinterpret_cast<const float*>(ncl.data.data());
  float* const to = reinterpret_cast<float*>(nlc.data.data());
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < samples; ++i) to[i * channels + c] = from[c * samples + i];
  }
  return nlc;
}

}  // namespace

Tensor read_x(const fs::path& path, bool channels_last) {
  if (path.extension() == ".npy") return read_npy(path);
  Tensor x = read_audio(path).samples;
  return channels_last ? transpose_audio(x) : x;
}

std::vector<FilePair> pair_files(const fs::path& input, const fs::path& output) {
  if (!fs::is_directory(input)) return {{input, output}};
  std::vector<FilePair> pairs;
  std::map<fs::path, fs::path> taken;
  for (const fs::path& file : list_inputs(input)) {
    const fs::path result = output / (file.stem().string() + ".npy");
    const auto [other, fresh] = taken.emplace(result, file);
    if (!fresh) {
      throw BadInput(fmt::format("{} and {} would both become {}; rename one", printable(other->second.string()),
                                 printable(file.string()), printable(result.string())));
    }
    pairs.push_back({file, result});
  }
  if (pairs.empty()) {
    throw BadInput(fmt::format("--input {} holds no .npy, .wav or .flac file", printable(input.string())));
  }
  std::error_code error;
  fs::create_directories(output, error);
  if (error || !fs::is_directory(output)) {
    throw BadInput(fmt::format("--output {} must be a directory, because --input is one", printable(output.string())));
  }
  return pairs;
}

}  // namespace convnorm::cli
