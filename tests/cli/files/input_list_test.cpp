#include "cli/files/input_list.hpp"

#include "tests/cli/files/support.hpp"

namespace convnorm::cli::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InputList : public FilesTest {};

TEST_F(InputList, TakesTheKnownExtensionsByName) {
  for (const std::string_view name : {"b.npy", "a.WAV", "c.flac", "B.wav", ".hidden.npy", "notes.txt", "npy"}) {
    write(name, "");
  }
  std::filesystem::create_directory(path("directory.npy"));
  std::filesystem::create_symlink("b.npy", path("link.npy"));
  std::filesystem::create_symlink("absent", path("dangling.npy"));
  EXPECT_THAT(list_inputs(directory_),
              ElementsAre(path("B.wav"), path("a.WAV"), path("b.npy"), path("c.flac"), path("link.npy")));
}

TEST_F(InputList, RefusesNothing) {
  EXPECT_THAT(refusal([&] { list_inputs(directory_); }), HasSubstr("holds no .npy, .wav or .flac file"));
  EXPECT_THAT(refusal([&] { list_inputs(path("absent")); }), HasSubstr("absent: cannot be listed"));
  EXPECT_THAT(refusal([&] { list_inputs(write("file", "")); }), HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace convnorm::cli::testing
