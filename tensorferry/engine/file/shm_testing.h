// Helpers for tests of engine/file: files as somebody else may have put them into the directory.
//
//   TempDir dir;                                           // base/temp_dir_testing.h
//   PutFile(dir / "smg-tokenspeed-7-1-0", "bytes");
//   Age(dir / "smg-tokenspeed-7-1-0", std::chrono::minutes(2));
//   EXPECT_THAT(FilesIn(dir.path()), IsEmpty());
//
// Thread-safety: pure but for the file system.
#ifndef TENSORFERRY_ENGINE_FILE_SHM_TESTING_H_
#define TENSORFERRY_ENGINE_FILE_SHM_TESTING_H_

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensorferry/base/fd.h"

namespace tensorferry::engine {

void PutFile(const std::string& path, std::string_view bytes);
// So long ago it was written.
void Age(const std::string& path, std::chrono::seconds age);
// A lock as a live gateway holds it.
UniqueFd LockFile(const std::string& path);
bool Exists(const std::string& path);  // symbolic links count themselves
std::string BytesOf(const std::string& path);
std::vector<std::string> FilesIn(const std::string& directory);  // sorted

std::span<const std::byte> AsBytes(std::string_view text);
// Bytes of which no two neighbours, and no two pieces, are the same.
std::string Pattern(size_t nbytes);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_FILE_SHM_TESTING_H_
