// What the file tests share: a directory that goes away, files made byte by byte, and the text of a refusal.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sndfile.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "cli/files/tensor.hpp"

namespace convnorm::cli::testing {

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    std::string name = (std::filesystem::temp_directory_path() / "convnorm-files-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    directory_ = name;
  }
  ~FilesTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path path(std::string_view name) const { return directory_ / name; }

  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      found.push_back(entry.path().filename().string());
    }
    return found;
  }

  std::filesystem::path directory_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The bytes of a value as a little-endian file has them.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class T>
std::string raw_all(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) bytes += raw(value);
  return bytes;
}

template <class T>
Tensor make_tensor(ElementType type, std::vector<int64_t> shape, const std::vector<T>& values) {
  const std::string bytes = raw_all(values);
  Tensor tensor{type, std::move(shape), std::vector<std::byte>(bytes.size())};
  std::memcpy(tensor.data.data(), bytes.data(), bytes.size());
  return tensor;
}

// "" when nothing is refused; any exception but FileError fails the test by escaping.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

inline void expect_same(const Tensor& actual, const Tensor& expected) {
  EXPECT_EQ(actual.type, expected.type);
  EXPECT_EQ(actual.shape, expected.shape);
  EXPECT_EQ(actual.data, expected.data);
}

inline std::string npy_file(std::string_view header, std::string_view data, int major = 1, int minor = 0) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += static_cast<char>(minor);
  bytes += major == 1 ? raw(static_cast<uint16_t>(header.size())) : raw(static_cast<uint32_t>(header.size()));
  return bytes.append(header).append(data);
}

inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return raw(uint64_t{header.size()}).append(header).append(data);
}

inline std::string chunk(std::string_view id, std::string_view body) {
  std::string bytes(id);
  bytes += raw(static_cast<uint32_t>(body.size()));
  bytes += body;
  if (body.size() % 2 == 1) bytes += '\0';
  return bytes;
}

inline std::string wav_format(uint16_t tag, uint16_t channels, uint16_t bits, std::string_view extension = "") {
  constexpr uint32_t kRate = 16000;
  const auto frame = static_cast<uint16_t>(channels * bits / 8);
  return raw(tag) + raw(channels) + raw(kRate) + raw(kRate * frame) + raw(frame) + raw(bits) + std::string(extension);
}

inline std::string wav_file(std::string_view chunks) {
  return "RIFF" + raw(static_cast<uint32_t>(chunks.size() + 4)) + "WAVE" + std::string(chunks);
}

// The bytes of the interleaved values in a format of libsndfile, by way of a file at `scratch`.
inline std::string encode_audio(const std::filesystem::path& scratch, int format, const std::vector<float>& values,
                                int channels) {
  SF_INFO info{};
  info.samplerate = 16000;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(scratch.c_str(), SFM_WRITE, &info);
  EXPECT_NE(file, nullptr) << sf_strerror(nullptr);
  const auto count = static_cast<sf_count_t>(values.size());
  EXPECT_EQ(sf_write_float(file, values.data(), count), count);
  sf_close(file);
  return read_bytes(scratch);
}

}  // namespace convnorm::cli::testing
