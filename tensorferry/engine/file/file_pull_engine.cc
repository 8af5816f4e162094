#include "tensorferry/engine/file/file_pull_engine.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "tensorferry/base/error.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/file/shm_sweep.h"

namespace tensorferry::engine {
namespace {

// Read per Step, so that a deadline or a cancellation is noticed within a millisecond or two, and
// other pulls of the thread get their turn.
constexpr size_t kPiece = size_t{4} << 20;

absl::Status CheckWay(const wire::Descriptor& descriptor) {
  const wire::FileWay* way = wire::FindWay<wire::FileWay>(descriptor);
  if (way == nullptr) {
    return MakeError(Reason::kNoCommonWay, "the descriptor names no file");
  }
  return CheckShmName(way->name).status();
}

class FilePullOp final : public PullOp {
 public:
  FilePullOp(const FilePullOptions* options, const PullRequest& request)
      : options_(options), request_(request) {}

  Progress Step() override;
  void AddWaits(std::vector<pollfd>*, Instant* wake) const override {
    *wake = std::min(*wake, request_.deadline);
  }
  absl::StatusOr<Landed> TakeResult() override { return *std::move(result_); }
  void Acknowledge() override;

 private:
  Progress Finish(absl::StatusOr<Landed> result) {
    result_ = std::move(result);
    return Progress::kDone;
  }
  absl::Status Open();
  absl::Status OpenError(int error) const;
  absl::Status CheckOwner(uint32_t uid) const;
  absl::Status CheckFile(const struct stat& info);
  absl::Status ReadPiece();
  std::string Path() const { return StrCat(options_->directory, "/", name_); }

  const FilePullOptions* const options_;
  const PullRequest request_;
  std::string name_;
  UniqueFd directory_;
  UniqueFd file_;
  uint64_t begin_ = 0;  // of the bytes, in the file
  uint64_t read_ = 0;
  std::optional<absl::StatusOr<Landed>> result_;
};

PullOp::Progress FilePullOp::Step() {
  if (result_) return Progress::kDone;
  if (RealClock().Now() >= request_.deadline) {
    return Finish(
        MakeError(Reason::kTimedOut, StrCat("the deadline passed when ", read_, " of ",
                                            request_.length, " bytes of a file had been read")));
  }
  absl::Status status = file_ ? ReadPiece() : Open();
  if (!status.ok()) return Finish(std::move(status));
  if (read_ < request_.length) return Progress::kMoved;
  return Finish(Landed{.bytes = request_.into, .hold = nullptr});
}

absl::Status FilePullOp::Open() {
  if (absl::Status s = CheckWay(*request_.descriptor); !s.ok()) return s;
  name_ = *CheckShmName(wire::FindWay<wire::FileWay>(*request_.descriptor)->name);
  if (request_.into.size() != request_.length) {
    return MakeError(Reason::kSizeMismatch, StrCat("memory of ", request_.into.size(),
                                                   " bytes to read ", request_.length, " into"));
  }
  directory_ = UniqueFd(::open(options_->directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory_) return SystemError(errno, StrCat("opening ", options_->directory));
  // O_NONBLOCK: a FIFO of that name would otherwise keep us waiting for a writer.
  file_ = UniqueFd(
      ::openat(directory_.get(), name_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file_) return OpenError(errno);
  struct stat info;
  if (::fstat(file_.get(), &info) != 0) return SystemError(errno, StrCat("examining ", Path()));
  return CheckFile(info);
}

absl::Status FilePullOp::OpenError(int error) const {
  switch (error) {
    case ENOENT:
      return MakeError(Reason::kLeaseEnded,
                       StrCat(Path(),
                              " does not exist: it was read and removed already, its "
                              "gateway gave up or died, or is on another host"));
    case ELOOP:
      return MakeError(Reason::kNotAllowed, StrCat(Path(), " is a symbolic link: not followed"));
    case ENXIO:
    case ENODEV:
      return MakeError(Reason::kNotAllowed, StrCat(Path(), " is not a regular file"));
    case EACCES:
    case EPERM: {
      struct stat info;
      if (::fstatat(directory_.get(), name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
        if (absl::Status s = CheckOwner(info.st_uid); !s.ok()) return s;
      }
      break;
    }
    default:
      break;
  }
  return SystemError(error, StrCat("opening ", Path()));
}

absl::Status FilePullOp::CheckOwner(uint32_t uid) const {
  const uint32_t own = ::geteuid();
  if (uid == own || std::count(options_->allowed_uids.begin(), options_->allowed_uids.end(), uid)) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kUidMismatch,
                   StrCat(Path(), " belongs to uid ", uid, ", this worker runs as uid ", own,
                          ": run both as one user, or allow that uid (FilePullOptions)"));
}

absl::Status FilePullOp::CheckFile(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return MakeError(Reason::kNotAllowed, StrCat(Path(), " is not a regular file"));
  }
  if (absl::Status s = CheckOwner(info.st_uid); !s.ok()) return s;
  // 0: removed since it was opened. More than one: somebody shows us a file from elsewhere.
  if (info.st_nlink > 1) {
    return MakeError(Reason::kNotAllowed,
                     StrCat(Path(), " has ", info.st_nlink, " names: a gateway's file has one"));
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  const uint64_t offset = wire::FindWay<wire::FileWay>(*request_.descriptor)->offset;
  // Each against what the others leave, so that no sum can overflow.
  if (offset > size || request_.offset > size - offset ||
      request_.length > size - offset - request_.offset) {
    return MakeError(Reason::kOutOfRange,
                     StrCat(Path(), " has ", size, " bytes, and the handle asks for ",
                            request_.length, " from ", offset, " on"));
  }
  begin_ = offset + request_.offset;
  return absl::OkStatus();
}

absl::Status FilePullOp::ReadPiece() {
  const auto piece = static_cast<size_t>(std::min<uint64_t>(kPiece, request_.length - read_));
  const ssize_t n =
      ::pread(file_.get(), request_.into.data() + read_, piece, static_cast<off_t>(begin_ + read_));
  if (n < 0 && errno == EINTR) return absl::OkStatus();
  if (n < 0) return SystemError(errno, StrCat("reading ", Path()));
  if (n == 0) {
    return MakeError(Reason::kOutOfRange,
                     StrCat(Path(), " was shortened while it was read: ", read_, " of ",
                            request_.length, " bytes were there"));
  }
  read_ += static_cast<uint64_t>(n);
  return absl::OkStatus();
}

void FilePullOp::Acknowledge() {
  if (!options_->unlink || !LeadsTo(directory_.get(), name_, file_.get())) return;
  if (::unlinkat(directory_.get(), name_.c_str(), 0) == 0 || errno == ENOENT) return;
  Log(options_->log, LogLevel::kWarning,
      StrCat(Path(), " was read, and cannot be removed (", std::strerror(errno),
             "): its gateway has to"));
}

class FilePullEngine final : public PullEngine {
 public:
  explicit FilePullEngine(FilePullOptions options) : options_(std::move(options)) {}

  std::string_view transport() const override { return "file"; }
  bool borrows() const override { return false; }
  absl::Status CanTry(const wire::Descriptor& descriptor) const override {
    return CheckWay(descriptor);
  }
  std::unique_ptr<PullOp> Start(const PullRequest& request) override {
    return std::make_unique<FilePullOp>(&options_, request);
  }

 private:
  const FilePullOptions options_;
};

}  // namespace

std::unique_ptr<PullEngine> CreateFilePullEngine(FilePullOptions options) {
  return std::make_unique<FilePullEngine>(std::move(options));
}

}  // namespace tensorferry::engine
