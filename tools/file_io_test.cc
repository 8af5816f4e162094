#include "tools/file_io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tools/input/input_testing.h"

namespace tensorferry::tools {
namespace {

using testing::HasSubstr;

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(FileIoTest, ReadsWhatIsThere) {
  const TempDir dir;
  const auto file = OpenForReading(dir.Write("f", "content"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size, 7u);
  std::string read(7, ' ');
  ASSERT_TRUE(ReadInto(*file, std::as_writable_bytes(std::span(read.data(), read.size()))).ok());
  EXPECT_EQ(read, "content");
}

TEST(FileIoTest, AFileThatBecameShorterIsAnError) {
  const TempDir dir;
  const std::string path = dir.Write("f", "content");
  const auto file = OpenForReading(path);
  ASSERT_EQ(::truncate(path.c_str(), 3), 0);
  std::vector<std::byte> to(7);
  EXPECT_THAT(std::string(ReadInto(*file, to).message()), HasSubstr("became shorter"));
}

TEST(FileIoTest, ReplacesAFileWhole) {
  const TempDir dir;
  const std::string path = dir.Write("f", "what was there before");
  const std::span<const std::byte> parts[] = {AsSpan("new "), AsSpan(""), AsSpan("content")};
  ASSERT_TRUE(WriteFile(path, parts).ok());
  EXPECT_EQ(Content(path), "new content");
  EXPECT_NE(::access((path + ".partial").c_str(), F_OK), 0);
}

TEST(FileIoTest, WhatIsNoFileIsWrittenToAndStays) {
  const std::span<const std::byte> parts[] = {AsSpan("x")};
  EXPECT_TRUE(WriteFile("/dev/null", parts).ok());
  struct stat info;
  ASSERT_EQ(::stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_THAT(std::string(WriteFile("/dev/full", parts).message()),
              HasSubstr("/dev/full: writing: No space left on device"));
}

}  // namespace
}  // namespace tensorferry::tools
