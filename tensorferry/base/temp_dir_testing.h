// A new directory for one test, removed with the files in it.
//
//   TempDir dir;
//   const std::string path = dir.Write("a.npy", content);
//   Listen(dir / "gateway.sock");
//
// Ownership: the directory goes with the object.
// Thread-safety: const calls from any thread.
#ifndef TENSORFERRY_BASE_TEMP_DIR_TESTING_H_
#define TENSORFERRY_BASE_TEMP_DIR_TESTING_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace tensorferry {

class TempDir {
 public:
  TempDir() : path_(std::filesystem::temp_directory_path() / kPattern) {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string Write(std::string_view name, std::string_view content) const {
    const std::string path = *this / name;
    std::ofstream(path, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return path;
  }

 private:
  // Short: a unix socket's path is at most 107 bytes. mkdtemp fills in the last six letters.
  static constexpr char kPattern[] = "tf-XXXXXX";
  std::string path_;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_TEMP_DIR_TESTING_H_
