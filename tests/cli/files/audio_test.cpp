#include "cli/files/audio.hpp"

#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "tests/cli/files/support.hpp"

namespace convnorm::cli::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Interleaved stereo, exact in 16 bits.
const std::vector<float> kStereo = {0.5F, -0.5F, 0.25F, -0.25F, 0.125F, -1.0F};
const std::vector<float> kPlanar = {0.5F, 0.25F, 0.125F, -0.5F, -0.25F, -1.0F};

std::string pcm(int bits) {
  std::string bytes;
  for (const float value : kStereo) {
    bytes += raw(static_cast<int32_t>(std::ldexp(value, bits - 1))).substr(0, static_cast<size_t>(bits / 8));
  }
  return bytes;
}

// The extension of WAVE_FORMAT_EXTENSIBLE for 16-bit PCM; its own size field is `bytes`.
std::string extensible(uint16_t bytes) {
  const std::string guid("\1\0\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 16);
  std::string extension = raw(bytes) + raw(uint16_t{16}) + raw(uint32_t{3}) + guid;
  extension.resize(bytes + sizeof bytes, '\0');
  return extension;
}

class AudioFiles : public FilesTest {
 protected:
  void expect_stereo(std::string_view bytes, float tolerance = 0) const {
    const Audio audio = read_audio(write("x.wav", bytes));
    EXPECT_EQ(audio.sample_rate, 16000);
    EXPECT_EQ(audio.samples.type, ElementType::f32);
    EXPECT_THAT(audio.samples.shape, ElementsAre(1, 2, 3));
    EXPECT_THAT(to_float32(audio.samples), Pointwise(FloatNear(tolerance), kPlanar));
  }

  std::string refused(std::string_view bytes) const {
    const auto start = std::chrono::steady_clock::now();
    const std::string message = refusal([&] { read_audio(write("x.wav", bytes)); });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
    return message;
  }

  std::string encoded(int format, const std::vector<float>& values, int channels) const {
    return encode_audio(path("encoded"), format, values, channels);
  }
};

TEST_F(AudioFiles, B127_ValidVariantsOfWav) {
  const std::string data16 = chunk("data", pcm(16));
  expect_stereo(wav_file(chunk("fmt ", wav_format(1, 2, 16)) + data16));
  expect_stereo(wav_file(chunk("fmt ", wav_format(1, 2, 24)) + chunk("data", pcm(24))));
  expect_stereo(wav_file(chunk("fmt ", wav_format(1, 2, 32)) + chunk("data", pcm(32))));
  expect_stereo(wav_file(chunk("fmt ", wav_format(3, 2, 32)) + chunk("data", raw_all(kStereo))));
  expect_stereo(wav_file(chunk("fmt ", wav_format(3, 2, 32, raw(uint16_t{22}) + std::string(22, '\0'))) +
                         chunk("data", raw_all(kStereo))));
  expect_stereo(wav_file(chunk("fmt ", wav_format(65534, 2, 16, extensible(22))) + data16));
  expect_stereo(wav_file(chunk("fmt ", wav_format(65534, 2, 16, extensible(24))) + data16));
  expect_stereo(wav_file(chunk("LIST", std::string("INFOISFT\6\0\0\0tests\0", 18)) +
                         chunk("fmt ", wav_format(1, 2, 16)) +
                         chunk("LIST", std::string("INFOISFT\6\0\0\0tests\0", 18)) + data16));
  expect_stereo(wav_file(chunk("fmt ", wav_format(1, 2, 16)) + data16 + chunk("LIST", "INFO")));
}

TEST_F(AudioFiles, B125_FormatChunkOfImpossibleSize) {
  std::string bytes = wav_file(chunk("fmt ", wav_format(1, 2, 16)) + chunk("data", std::string(25, '\1')));
  bytes.resize(69);
  bytes.replace(16, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_NE(refused(bytes), "");
}

TEST_F(AudioFiles, B125_ChunkOfOddSize) {
  expect_stereo(wav_file(chunk("junk", "odd") + chunk("fmt ", wav_format(1, 2, 16)) + chunk("note", "1") +
                         chunk("data", pcm(16))));
}

TEST_F(AudioFiles, B125_ChunksOfImpossibleSize) {
  for (const uint32_t size : {0xFFFFFFFFU, 0xFFFFFFFEU, 0x80000000U, 0x7FFFFFFFU}) {
    const std::string format = chunk("fmt ", wav_format(1, 2, 16));
    EXPECT_NE(refused(wav_file("junk" + raw(size) + format + chunk("data", pcm(16)))), "") << size;
    EXPECT_NE(refused(wav_file(format + "junk" + raw(size) + chunk("data", pcm(16)))), "") << size;
  }
}

TEST_F(AudioFiles, B125_StreamedDataIsReadToTheEnd) {
  std::string bytes = wav_file(chunk("fmt ", wav_format(1, 2, 16)) + "data" + raw(0xFFFFFFFFU) + pcm(16));
  expect_stereo(bytes);
  bytes.replace(4, 4, "\xFF\xFF\xFF\xFF");
  expect_stereo(bytes);
}

TEST_F(AudioFiles, OtherContainers) {
  expect_stereo(encoded(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, kStereo, 2), 0x1p-14F);
  expect_stereo(encoded(SF_FORMAT_AIFF | SF_FORMAT_FLOAT, kStereo, 2));
  expect_stereo(encoded(SF_FORMAT_AU | SF_FORMAT_FLOAT, kStereo, 2));
  expect_stereo(encoded(SF_FORMAT_CAF | SF_FORMAT_FLOAT, kStereo, 2));
  expect_stereo(encoded(SF_FORMAT_RF64 | SF_FORMAT_FLOAT, kStereo, 2));
  expect_stereo(encoded(SF_FORMAT_W64 | SF_FORMAT_FLOAT, kStereo, 2));
}

TEST_F(AudioFiles, MoreThanOneBlock) {
  constexpr size_t kCount = 200'001;
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000) * 0x1p-10F;
  const Audio audio = read_audio(write("long.wav", encoded(SF_FORMAT_WAV | SF_FORMAT_FLOAT, values, 1)));
  EXPECT_EQ(to_float32(audio.samples), values);
}

TEST_F(AudioFiles, SilenceInFlacIsNotTakenForAnAttack) {
  const std::vector<float> silence(16000 * 60, 0.0F);
  const std::string bytes = encoded(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, silence, 2);
  EXPECT_THAT(read_audio(write("silence.flac", bytes)).samples.shape, ElementsAre(1, 2, 16000 * 30));
}

TEST_F(AudioFiles, TruncatedFlacIsRefused) {
  std::vector<float> values(40000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7919) % 2001) * 0x1p-12F;
  const std::string bytes = encoded(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, values, 1);
  EXPECT_NE(refused(bytes.substr(0, bytes.size() / 2)), "");
}

TEST_F(AudioFiles, TruncatedWavIsRefused) {
  const std::string bytes = wav_file(chunk("fmt ", wav_format(1, 2, 16)) + chunk("data", pcm(16)));
  EXPECT_THAT(refused(bytes.substr(0, bytes.size() - 4)), HasSubstr("claims 12 bytes and 8 are there"));
  EXPECT_THAT(refused(bytes.substr(0, bytes.size() - 12)), HasSubstr("claims 12 bytes and 0 are there"));
}

TEST_F(AudioFiles, RefusesWhatIsNotAudio) {
  EXPECT_THAT(refused("just some text, long enough to be looked at"), HasSubstr("x.wav: is not audio"));
  EXPECT_THAT(refused(""), HasSubstr("is not audio"));
  EXPECT_THAT(refused(npy_file("{}", "1234")), HasSubstr("is not audio"));
  EXPECT_THAT(refused(wav_file(chunk("fmt ", wav_format(1, 2, 16)) + chunk("data", ""))),
              HasSubstr("holds no samples"));
  EXPECT_NE(refused(wav_file(chunk("fmt ", wav_format(1, 0, 16)) + chunk("data", pcm(16)))), "");
  EXPECT_NE(refused(wav_file(chunk("fmt ", wav_format(1, 65535, 16)) + chunk("data", pcm(16)))), "");
  EXPECT_THAT(refusal([&] { read_audio(directory_); }), HasSubstr("is a directory"));
}

TEST_F(AudioFiles, ReadsFromAPipe) {
  const std::string bytes = wav_file(chunk("fmt ", wav_format(1, 2, 16)) + "data" + raw(0xFFFFFFFFU) + pcm(16));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::jthread writer([&] { std::ofstream(path("pipe"), std::ios::binary) << bytes; });
  EXPECT_EQ(to_float32(read_audio(path("pipe")).samples), kPlanar);
}

}  // namespace
}  // namespace convnorm::cli::testing
