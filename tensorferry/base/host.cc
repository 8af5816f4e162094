#include "tensorferry/base/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/escaping.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

constexpr size_t kBootIdChars = 36;
constexpr bool IsDash(size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

uint64_t InodeOf(const char* path) {
  struct stat file = {};
  return ::stat(path, &file) == 0 ? file.st_ino : 0;
}

}  // namespace

BootId ParseBootId(std::string_view text) {
  if (text.size() != kBootIdChars) return {};
  BootId out = {};
  size_t nibble = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsDash(i)) {
      if (text[i] != '-') return {};
      continue;
    }
    const int digit = HexDigit(text[i]);
    if (digit < 0) return {};
    out[nibble / 2] = static_cast<uint8_t>(out[nibble / 2] << 4 | digit);
    ++nibble;
  }
  return out;
}

std::string BootIdText(const BootId& boot_id) {
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(boot_id.data()), boot_id.size()));
  std::string out;
  for (const char c : hex) {
    if (IsDash(out.size())) out.push_back('-');
    out.push_back(c);
  }
  return out;
}

HostIdentity ThisHost() {
  HostIdentity host;
  host.uid = ::geteuid();
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  host.boot_id = ParseBootId(text);
  struct stat shm = {};
  if (host.boot_id != BootId{} && ::stat("/dev/shm", &shm) == 0) {
    host.shm_namespace = StrCat(text, ":", shm.st_dev);
  }
  host.pid_namespace = InodeOf("/proc/self/ns/pid");
  host.user_namespace = InodeOf("/proc/self/ns/user");
  return host;
}

}  // namespace tensorferry
