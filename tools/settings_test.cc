#include "tools/settings.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/input/input_testing.h"

namespace tensorferry::tools {
namespace {

using testing::StartsWith;

// Sets XDG_RUNTIME_DIR for one test.
class LocalSocketTest : public testing::Test {
 protected:
  LocalSocketTest() {
    if (const char* value = std::getenv(kName)) before_ = value;
  }
  ~LocalSocketTest() override {
    before_ ? ::setenv(kName, before_->c_str(), 1) : ::unsetenv(kName);
  }
  static void Set(const std::string& value) { ::setenv(kName, value.c_str(), 1); }

  const TempDir dir_;

 private:
  static constexpr const char* kName = "XDG_RUNTIME_DIR";
  std::optional<std::string> before_;
};

TEST_F(LocalSocketTest, APrivateOneIsOursAloneAndGoes) {
  Set(dir_.path());
  std::string path;
  {
    const LocalSocket socket("");
    path = socket.path();
    EXPECT_THAT(path, StartsWith(dir_ / "tensorferry-"));
    struct stat info;
    ASSERT_EQ(::stat(std::filesystem::path(path).parent_path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    EXPECT_NE(LocalSocket("").path(), path);
    std::ofstream(path) << "what a listener left";
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path()));
}

TEST_F(LocalSocketTest, WithoutAUsableRuntimeDirectoryItIsInTmp) {
  for (const std::string value : {"", "relative", "/no/such/directory"}) {
    Set(value);
    EXPECT_THAT(LocalSocket("").path(), StartsWith("/tmp/tensorferry-")) << value;
  }
  Set(dir_ / std::string(100, 'x'));
  std::filesystem::create_directory(dir_ / std::string(100, 'x'));
  EXPECT_THAT(LocalSocket("").path(), StartsWith("/tmp/tensorferry-")) << "too long for a socket";
}

TEST_F(LocalSocketTest, AGivenPathIsMadeAbsoluteAndLeftAlone) {
  const std::string given = dir_.Write("given.sock", "");
  EXPECT_EQ(LocalSocket(given).path(), given);
  EXPECT_TRUE(std::filesystem::exists(given));
  EXPECT_EQ(LocalSocket("x.sock").path(), (std::filesystem::current_path() / "x.sock").string());
}

}  // namespace
}  // namespace tensorferry::tools
