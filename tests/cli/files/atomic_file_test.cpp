#include "cli/files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/cli/files/support.hpp"

namespace convnorm::cli::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class AtomicFiles : public FilesTest {};

void store(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST_F(AtomicFiles, AppearsOnlyOnCommit) {
  write("y", "old");
  {
    AtomicFile file(path("y"));
    file.write("new");
    EXPECT_EQ(read_bytes(path("y")), "old");
    EXPECT_EQ(names().size(), 2);
    file.commit();
    EXPECT_EQ(read_bytes(path("y")), "new");
  }
  EXPECT_THAT(names(), ElementsAre("y"));
}

TEST_F(AtomicFiles, LeavesNothingWithoutCommit) {
  write("y", "old");
  { AtomicFile(path("y")).write("new"); }
  { AtomicFile(path("z")).write("new"); }
  EXPECT_THAT(names(), ElementsAre("y"));
  EXPECT_EQ(read_bytes(path("y")), "old");
}

TEST_F(AtomicFiles, PermissionsAreThoseOfCp) {
  const mode_t mask = ::umask(027);
  store(path("new"), "x");
  EXPECT_EQ(mode_of(path("new")), 0640);
  write("script", "old");
  ASSERT_EQ(::chmod(path("script").c_str(), 0755), 0);
  store(path("script"), "x");
  EXPECT_EQ(mode_of(path("script")), 0755);
  ::umask(mask);
}

TEST_F(AtomicFiles, ReplacesTheTargetOfALink) {
  fs::create_directory(path("elsewhere"));
  write("elsewhere/target", "old");
  fs::create_symlink("elsewhere/target", path("link"));
  fs::create_symlink("link", path("link_to_link"));
  store(path("link_to_link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link_to_link")));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_bytes(path("elsewhere/target")), "new");
  EXPECT_THAT(names(), UnorderedElementsAre("elsewhere", "link", "link_to_link"));
}

TEST_F(AtomicFiles, RefusesLinksThatLeadNowhere) {
  fs::create_symlink("absent", path("dangling"));
  EXPECT_THAT(refusal([&] { store(path("dangling"), "x"); }), AllOf(HasSubstr("dangling"), HasSubstr("absent")));
  fs::create_symlink("loop", path("loop"));
  EXPECT_THAT(refusal([&] { store(path("loop"), "x"); }), HasSubstr("symbolic links"));
}

TEST_F(AtomicFiles, WritesStraightToPipesAndDevices) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string received;
  {
    std::jthread reader([&] { received = read_bytes(path("pipe")); });
    store(path("pipe"), "through");
  }
  EXPECT_EQ(received, "through");
  store("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(AtomicFiles, ContinuesAnOpenDescriptor) {
  const int descriptor = ::open(path("redirected").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(descriptor, 0);
  ASSERT_EQ(::write(descriptor, "before ", 7), 7);
  store("/dev/fd/" + std::to_string(descriptor), "inside ");
  fs::create_symlink("/proc/self/fd/" + std::to_string(descriptor), path("link"));
  store(path("link"), "linked ");
  ASSERT_EQ(::write(descriptor, "after", 5), 5);
  ::close(descriptor);
  EXPECT_EQ(read_bytes(path("redirected")), "before inside linked after");
}

TEST_F(AtomicFiles, FullDiskNamesThePath) {
  EXPECT_THAT(refusal([] { store("/dev/full", "x"); }), AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
}

TEST_F(AtomicFiles, UnwritablePlacesAreNamed) {
  EXPECT_THAT(refusal([&] { store(path("absent/y"), "x"); }), AllOf(HasSubstr("absent/y"), HasSubstr("No such file")));
  EXPECT_THAT(refusal([&] { store("/proc/y", "x"); }), HasSubstr("/proc/y: cannot be created"));
  EXPECT_THAT(refusal([&] { store(write("file", "") / "y", "x"); }), HasSubstr("Not a directory"));
  EXPECT_THAT(refusal([&] { store(directory_, "x"); }), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal([&] { store(path("new/"), "x"); }), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal([&] { store("", "x"); }), HasSubstr("cannot be written"));
}

TEST_F(AtomicFiles, LongestPossibleName) {
  const std::string name(255, 'n');
  store(path(name), "x");
  EXPECT_EQ(read_bytes(path(name)), "x");
}

TEST_F(AtomicFiles, RelativeNameWithoutDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  store("y", "x");
  fs::current_path(before);
  EXPECT_EQ(read_bytes(path("y")), "x");
}

}  // namespace
}  // namespace convnorm::cli::testing
