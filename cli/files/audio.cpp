#include "cli/files/audio.hpp"

#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cli/files/input_file.hpp"

namespace convnorm::cli {
namespace {

constexpr uint64_t kMaxStreamBytes = 1 << 30;
constexpr size_t kMaxValuesPerByte = 4096;
constexpr size_t kBlockValues = 64 * 1024;

// libsndfile reads from memory, so that pipes work and a file that changes meanwhile cannot surprise it.
struct MemorySource {
  std::span<const std::byte> bytes;
  sf_count_t position = 0;
};

MemorySource& source_of(void* user) { return *static_cast<MemorySource*>(user); }

sf_count_t source_length(void* user) { return static_cast<sf_count_t>(source_of(user).bytes.size()); }

sf_count_t source_seek(sf_count_t offset, int whence, void* user) {
  MemorySource& source = source_of(user);
  const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? source.position : source_length(user);
  sf_count_t target = 0;
  if (__builtin_add_overflow(base, offset, &target) || target < 0) return -1;
  return source.position = target;
}

sf_count_t source_read(void* out, sf_count_t count, void* user) {
  MemorySource& source = source_of(user);
  const sf_count_t available = std::max<sf_count_t>(source_length(user) - source.position, 0);
  const sf_count_t taken = std::clamp<sf_count_t>(count, 0, available);
  if (taken > 0) std::memcpy(out, source.bytes.data() + source.position, static_cast<size_t>(taken));
  source.position += taken;
  return taken;
}

sf_count_t source_write(const void*, sf_count_t, void*) { return 0; }

sf_count_t source_tell(void* user) { return source_of(user).position; }

uint32_t little_endian(std::span<const std::byte> bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= std::to_integer<uint32_t>(bytes[i]) << (8 * i);
  return value;
}

bool starts_with(std::span<const std::byte> bytes, const char (&tag)[5]) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), tag, 4) == 0;
}

// libsndfile shortens a WAV that ends early to what is there and says nothing. Programs that write to a pipe cannot
// know the length and put a number near 2^31 or 2^32 in its place: such a claim means nothing.
void refuse_cut_wav(const InputFile& file, std::span<const std::byte> bytes) {
  constexpr uint32_t kNoClaim = 0x7FFF'0000;
  if (!starts_with(bytes, "RIFF") || bytes.size() < 12 || !starts_with(bytes.subspan(8), "WAVE")) return;
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const uint32_t claimed = little_endian(bytes.subspan(at + 4, 4));
    const size_t held = bytes.size() - at - 8;
    if (claimed >= kNoClaim) return;
    if (claimed > held) {
      const std::string_view name(reinterpret_cast<const char*>(bytes.data() + at), 4);
      file.fail(fmt::format("is truncated: the chunk {:?} at byte {} claims {} bytes and {} are there", name, at,
                            claimed, held));
    }
    if (starts_with(bytes.subspan(at), "data")) return;
    at += 8 + claimed + claimed % 2;
  }
}

std::vector<float> decode(const InputFile& file, SNDFILE* sound, size_t channels, size_t max_values) {
  std::vector<float> interleaved;
  std::vector<float> block(std::max(kBlockValues / channels, size_t{1}) * channels);
  const auto block_frames = static_cast<sf_count_t>(block.size() / channels);
  for (sf_count_t frames = 0; (frames = sf_readf_float(sound, block.data(), block_frames)) > 0;) {
    const size_t values = static_cast<size_t>(frames) * channels;
    if (values > max_values - interleaved.size()) {
      file.fail(
          fmt::format("decodes to more than {} values, {} per byte of the file; convert it to WAV if this is meant",
                      max_values, kMaxValuesPerByte));
    }
    interleaved.insert(interleaved.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(values));
  }
  if (sf_error(sound) != SF_ERR_NO_ERROR) {
    file.fail(fmt::format("is damaged after {} samples ({}); encode it again", interleaved.size() / channels,
                          sf_strerror(sound)));
  }
  return interleaved;
}

}  // namespace

Audio read_audio(const std::filesystem::path& path) {
  InputFile file(path);
  const std::vector<std::byte> bytes = file.read_to_end(kMaxStreamBytes);
  refuse_cut_wav(file, bytes);
  MemorySource source{bytes};
  SF_VIRTUAL_IO io{source_length, source_seek, source_read, source_write, source_tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> sound(sf_open_virtual(&io, SFM_READ, &info, &source), sf_close);
  if (!sound) {
    file.fail(fmt::format("is not audio that can be read ({}); give WAV, FLAC, AIFF, AU, CAF, Ogg or MP3",
                          sf_strerror(nullptr)));
  }
  if (info.channels < 1 || info.samplerate < 1) {
    file.fail(fmt::format("has {} channels at {} Hz; both must be 1 or more", info.channels, info.samplerate));
  }

  const auto channels = static_cast<size_t>(info.channels);
  const std::vector<float> interleaved = decode(file, sound.get(), channels, bytes.size() * kMaxValuesPerByte);
  const size_t samples = interleaved.size() / channels;
  if (samples == 0) file.fail("holds no samples; give a longer recording");
  // A stream that was encoded without knowing its length says so with the largest count.
  if (info.frames != SF_COUNT_MAX && static_cast<sf_count_t>(samples) < info.frames) {
    file.fail(fmt::format("ends after {} of {} samples; the file is truncated", samples, info.frames));
  }

  Tensor tensor{ElementType::f32, {1, info.channels, static_cast<int64_t>(samples)}, {}};
  tensor.data.resize(interleaved.size() * sizeof(float));
  for (size_t i = 0; i < interleaved.size(); ++i) {
    const size_t planar = i % channels * samples + i / channels;
    std::memcpy(tensor.data.data() + planar * sizeof(float), &interleaved[i], sizeof(float));
  }
  return {std::move(tensor), info.samplerate};
}

}  // namespace convnorm::cli
