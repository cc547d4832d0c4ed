// Files damaged in every way that a loop can think of. A reader may take or refuse them, within a second each and with
// memory in proportion to the file, and nothing but FileError may leave it.

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>

#include "cli/files/audio.hpp"
#include "cli/files/npy.hpp"
#include "cli/files/safetensors.hpp"
#include "tests/cli/files/allocation_watch.hpp"
#include "tests/cli/files/support.hpp"

namespace convnorm::cli::testing {
namespace {

using namespace std::string_view_literals;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kLimitAddressSpace = false;  // the sanitizer reserves terabytes of it
#else
constexpr bool kLimitAddressSpace = true;
#endif

using Reader = std::function<void(const std::filesystem::path&)>;

class Fuzz : public FilesTest {
 protected:
  // operator new shows what this code takes; the limit also holds for the C libraries below it.
  Fuzz() : descriptor_(::memfd_create("fuzz", 0)) {
    if (!kLimitAddressSpace) return;
    ::getrlimit(RLIMIT_AS, &previous_);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    constexpr size_t kPageBytes = 4096;
    rlimit limit = previous_;
    limit.rlim_cur = pages * kPageBytes + kAddressSpace;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~Fuzz() override {
    ::close(descriptor_);
    if (kLimitAddressSpace) ::setrlimit(RLIMIT_AS, &previous_);
  }

  void attack(const Reader& reader, const std::string& bytes) {
    ASSERT_EQ(::ftruncate(descriptor_, 0), 0);
    ASSERT_EQ(::pwrite(descriptor_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    const std::filesystem::path file = "/proc/self/fd/" + std::to_string(descriptor_);
    forget_allocations();
    const auto start = std::chrono::steady_clock::now();
    const std::string message = refusal([&] { reader(file); });
    const auto duration = std::chrono::steady_clock::now() - start;
    ++cases_;
    accepted_ += message.empty();
    ASSERT_LE(largest_allocation(), bytes.size() + kSpare) << message;
    ASSERT_LT(duration, std::chrono::seconds(1)) << message;
    ASSERT_EQ(message.find("memory"), std::string::npos) << message;
  }

  void truncate_everywhere(const Reader& reader, const std::string& valid) {
    for (size_t length = 0; length <= valid.size(); ++length) {
      attack(reader, valid.substr(0, length));
      if (HasFatalFailure()) return;
    }
    attack(reader, valid + '\0');
  }

  void mutate(const Reader& reader, const std::string& valid, int rounds) {
    constexpr std::string_view kTelling = "\0\x7F\x80\xFF 019-(){}[],:'\"\\"sv;
    for (int round = 0; round < rounds; ++round) {
      std::string bytes = valid;
      for (uint32_t change = 0; change <= random() % 3; ++change) {
        // Half of the changes go to the start, where the sizes are.
        const size_t reach = random() % 2 == 0 ? std::min(bytes.size(), size_t{64}) : bytes.size();
        const size_t at = random() % reach;
        switch (random() % 5) {
          case 0:
            bytes[at] = static_cast<char>(random());
            break;
          case 1:
            bytes[at] = kTelling[random() % kTelling.size()];
            break;
          case 2:
            bytes.erase(at, random() % 4);
            break;
          case 3:
            bytes.insert(at, random() % 4, static_cast<char>(random()));
            break;
          case 4:
            bytes.replace(at, 4, raw(uint32_t{0xFFFFFFFF} >> random() % 2));
            break;
        }
        if (bytes.empty()) bytes = "x";
      }
      attack(reader, bytes);
      if (HasFatalFailure()) return;
    }
  }

  std::string pick(const std::vector<std::string>& pieces, uint32_t most) {
    std::string text;
    for (uint32_t count = random() % most; count > 0; --count) text += pieces[random() % pieces.size()];
    return text;
  }

  static constexpr size_t kSpare = 2 << 20;
  static constexpr size_t kAddressSpace = 128 << 20;
  std::mt19937 random_{20240607};
  uint32_t random() { return static_cast<uint32_t>(random_()); }
  int descriptor_;  // a file in memory: tens of thousands on a disk would take minutes
  int cases_ = 0;
  int accepted_ = 0;
  rlimit previous_{};
};

const Reader kNpy = [](const auto& path) { read_npy(path); };
const Reader kSafetensors = [](const auto& path) { read_safetensors(path); };
const Reader kAudio = [](const auto& path) { read_audio(path); };

TEST_F(Fuzz, DamagedNpy) {
  for (const std::string_view header : {
           "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4), }  \n",
           "{'descr': '>i8', 'fortran_order': False, 'shape': (12,), }     \n",
           "{'descr': '|b1', 'fortran_order': True, 'shape': (0, 999999999, 96), }\n",
       }) {
    const std::string data(header.find("b1") == std::string_view::npos ? 96 : 0, '\1');
    const std::string valid = npy_file(header, data);
    ASSERT_EQ(refusal([&] { read_npy(write("valid", valid)); }), "");
    truncate_everywhere(kNpy, valid);
    mutate(kNpy, valid, 4000);
  }
  EXPECT_GT(accepted_, 0);
  EXPECT_LT(accepted_, cases_);
}

TEST_F(Fuzz, RandomNpyHeaders) {
  const std::vector<std::string> pieces = {
      "{",  "}",     "(",     ")", ",", "'descr':", "'shape':", "'<f4'", "'",           "\"",
      "1",  "(1,)",  "False", " ", "L", "-",        "'|b1'",    "[",     "99999999999", "'fortran_order':True",
      "\n", "(2,2)", "\\",    ":"};
  for (int round = 0; round < 4000; ++round) attack(kNpy, npy_file(pick(pieces, 24), "1234", 1 + round % 3));
}

TEST_F(Fuzz, DamagedSafetensors) {
  const std::string valid =
      safetensors_file(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                       R"("b":{"dtype":"I8","shape":[5],"data_offsets":[24,29]}})",
                       std::string(29, '\2'));
  ASSERT_EQ(refusal([&] { read_safetensors(write("valid", valid)); }), "");
  truncate_everywhere(kSafetensors, valid);
  mutate(kSafetensors, valid, 8000);
  EXPECT_GT(accepted_, 0);
  EXPECT_LT(accepted_, cases_);
}

TEST_F(Fuzz, RandomSafetensorsHeaders) {
  const std::vector<std::string> pieces = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           ":",
                                           "\"a\":{",
                                           "\"dtype\":\"U8\"",
                                           "\"shape\":[1]",
                                           "\"data_offsets\":[0,1]",
                                           "1",
                                           "-1",
                                           "1e99",
                                           "\"__metadata__\":{",
                                           "\"b\"",
                                           "null",
                                           "true",
                                           " ",
                                           "\\u0000",
                                           "\"",
                                           "18446744073709551615"};
  for (int round = 0; round < 4000; ++round) attack(kSafetensors, safetensors_file("{" + pick(pieces, 24), "1"));
}

TEST_F(Fuzz, DamagedContainers) {
  std::vector<float> values(600);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7919) % 2001) * 0x1p-12F;
  for (const int format : {SF_FORMAT_FLAC, SF_FORMAT_AIFF, SF_FORMAT_AU, SF_FORMAT_CAF, SF_FORMAT_W64}) {
    const std::string valid = encode_audio(path("encoded"), format | SF_FORMAT_PCM_16, values, 2);
    ASSERT_EQ(refusal([&] { read_audio(write("valid", valid)); }), "");
    truncate_everywhere(kAudio, valid);
    mutate(kAudio, valid, 1000);
  }
}

TEST_F(Fuzz, DamagedWav) {
  const std::string data = chunk("data", std::string(64, '\3'));
  const std::string extension = raw(uint16_t{22}) + raw(uint16_t{16}) + raw(uint32_t{3}) +
                                std::string("\1\0\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 16);
  for (const std::string& format :
       {wav_format(1, 2, 16), wav_format(3, 1, 32, raw(uint16_t{0})), wav_format(65534, 2, 16, extension)}) {
    const std::string valid = wav_file(chunk("LIST", "INFO") + chunk("fmt ", format) + data);
    ASSERT_EQ(refusal([&] { read_audio(write("valid", valid)); }), "");
    truncate_everywhere(kAudio, valid);
    mutate(kAudio, valid, 2000);
  }
  EXPECT_GT(accepted_, 0);
  EXPECT_LT(accepted_, cases_);
}

}  // namespace
}  // namespace convnorm::cli::testing
