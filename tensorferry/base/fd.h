// Owns a file descriptor and closes it.
//
//   UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
//   if (!fd) return SystemError(errno, "eventfd");
//
// Thread-safety: none of its own, like a unique_ptr.
#ifndef TENSORFERRY_BASE_FD_H_
#define TENSORFERRY_BASE_FD_H_

#include <unistd.h>

#include <utility>

namespace tensorferry {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace tensorferry

#endif  // TENSORFERRY_BASE_FD_H_
