// Audio files through libsndfile: WAV (every variant), FLAC, AIFF, AU, CAF, Ogg, MP3 and what else it reads.
#pragma once

#include <filesystem>

#include "cli/files/tensor.hpp"

namespace convnorm::cli {

struct Audio {
  Tensor samples;   // f32 of shape (1, channels, samples); integer formats are scaled to [-1, 1)
  int sample_rate;  // in Hz
};

// What is decoded, not what the header claims, decides how much memory is taken. A file that decodes to more than 4,096
// values per byte is refused: an hour of silence in FLAC reaches 500, and a file made to exhaust memory much more.
// A stream (a pipe) may have up to 1 GiB.
Audio read_audio(const std::filesystem::path& path);

}  // namespace convnorm::cli
