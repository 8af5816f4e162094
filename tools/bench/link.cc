#include "tools/bench/link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/base/version.h"

namespace tensorferry::tools::bench {
namespace {

struct SocketPair {
  UniqueFd ours, theirs;
};

absl::StatusOr<SocketPair> MakePair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemError(errno, "a socket pair for a stream");
  }
  return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> Link::Start(size_t streams) {
  std::unique_ptr<Link> link(new Link);
  std::vector<UniqueFd> theirs;
  std::vector<std::string> command = {"/proc/self/exe", "bench", "--serve-streams"};
  for (size_t i = 0; i < streams; ++i) {
    absl::StatusOr<SocketPair> pair = MakePair();
    if (!pair.ok()) return pair.status();
    link->streams_.emplace_back(std::move(pair->ours));
    // The first becomes the child's standard input.
    command.push_back(StrCat(i == 0 ? STDIN_FILENO : pair->theirs.get()));
    theirs.push_back(std::move(pair->theirs));
  }
  if (absl::Status s = link->Spawn(command, std::move(theirs)); !s.ok()) return s;
  if (absl::Status s = link->WaitReady(); !s.ok()) return s;
  return link;
}

absl::StatusOr<std::unique_ptr<Link>> Link::StartProgram(const std::string& command) {
  std::unique_ptr<Link> link(new Link);
  link->ours_ = false;
  absl::StatusOr<SocketPair> pair = MakePair();
  if (!pair.ok()) return pair.status();
  link->streams_.emplace_back(std::move(pair->ours));
  std::vector<UniqueFd> theirs;
  theirs.push_back(std::move(pair->theirs));
  if (absl::Status s = link->Spawn({"/bin/sh", "-c", StrCat("exec ", command)}, std::move(theirs));
      !s.ok()) {
    return s;
  }
  if (absl::Status s = link->WaitReady(); !s.ok()) return s;
  link->machine_ = MachineText();
  link->version_ = command;
  return link;
}

absl::StatusOr<std::unique_ptr<Link>> Link::Dial(const SocketAddress& gateway, size_t streams) {
  std::unique_ptr<Link> link(new Link);
  sockaddr_storage storage = {};
  const socklen_t length = gateway.ToSockaddr(&storage);
  for (size_t i = 0; i < streams; ++i) {
    UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
      return SystemError(errno, StrCat("--peer ", gateway.ToString()));
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    link->streams_.emplace_back(std::move(fd));
  }
  return link;
}

absl::Status Link::Spawn(const std::vector<std::string>& command, std::vector<UniqueFd> inherited) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const bool ours = ours_;
  child_ = ::fork();
  if (child_ < 0) return SystemError(errno, "starting the gateway");
  if (child_ > 0) return absl::OkStatus();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(inherited[0].get(), STDIN_FILENO);
  // What libraries print is no answer; only a program that is not ours answers there.
  ::dup2(ours ? STDERR_FILENO : STDIN_FILENO, STDOUT_FILENO);
  for (size_t i = 1; i < inherited.size(); ++i) ::fcntl(inherited[i].get(), F_SETFD, 0);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

absl::Status Link::WaitReady() {
  return Annotate(AnswerTo("ready", streams_[0].Read(kPatience)).status(),
                  "the gateway did not start");
}

Link::~Link() {
  streams_.clear();  // ours ends with its streams
  if (child_ <= 0) return;
  if (!ours_) ::kill(child_, SIGKILL);
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status Link::Open(const Opening& opening) {
  uint64_t session = 0;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const std::string line =
        i == 0 ? StrCat("open ", FormatOpening(opening)) : StrCat("join ", session);
    if (absl::Status s = streams_[i].Write(line); !s.ok()) return s;
    const absl::StatusOr<std::string> answer = AnswerTo("opened", streams_[i].Read(kPatience));
    if (!answer.ok()) return answer.status();
    const auto opened = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
    if (!opened.is_object()) return MakeError(Reason::kProtocol, "not understood: opened");
    session = opened.value("session", uint64_t{0});
    machine_ = opened.value("machine", "");
    version_ = opened.value("version", "");
  }
  return child_ == 0 ? FindClock() : absl::OkStatus();
}

// Half-way between question and answer; of many, the pair that took least.
absl::Status Link::FindClock() {
  constexpr int kQuestions = 50;
  clock_error_ = Duration::max();
  const RealClock clock;
  for (int i = 0; i < kQuestions; ++i) {
    const Instant asked = clock.Now();
    if (absl::Status s = streams_[0].Write("clock"); !s.ok()) return s;
    const absl::StatusOr<std::string> answer = AnswerTo("clock", streams_[0].Read(kPatience));
    const Instant answered = clock.Now();
    if (!answer.ok()) return answer.status();
    int64_t theirs = 0;
    if (!absl::SimpleAtoi(*answer, &theirs)) {
      return MakeError(Reason::kProtocol, StrCat("no time: ", *answer));
    }
    const Duration half = (answered - asked) / 2;
    if (half >= clock_error_) continue;
    clock_error_ = half;
    clock_offset_ = asked + half - Instant(Duration(theirs));
  }
  return absl::OkStatus();
}

absl::StatusOr<Link::GatewayUsage> Link::AskUsage() {
  if (!ours_) {
    const absl::StatusOr<Usage> usage = UsageOfTree(child_, 0);
    if (!usage.ok()) return usage.status();
    return GatewayUsage{.usage = *usage};
  }
  if (absl::Status s = streams_[0].Write("usage"); !s.ok()) return s;
  const absl::StatusOr<std::string> answer = AnswerTo("usage", streams_[0].Read(kPatience));
  if (!answer.ok()) return answer.status();
  const std::vector<std::string> words = absl::StrSplit(*answer, ' ');
  GatewayUsage usage;
  if (words.size() != 3 || !absl::SimpleAtod(words[0], &usage.usage.cpu_seconds) ||
      !absl::SimpleAtoi(words[1], &usage.usage.peak_bytes) ||
      !absl::SimpleAtod(words[2], &usage.arena_bytes_per_tensor)) {
    return MakeError(Reason::kProtocol, StrCat("not understood: usage ", *answer));
  }
  return usage;
}

absl::Status Link::ResetPeak() {
  if (!ours_) {
    bench::ResetPeak(child_, 0);
    return absl::OkStatus();
  }
  if (absl::Status s = streams_[0].Write("reset"); !s.ok()) return s;
  return AnswerTo("reset", streams_[0].Read(kPatience)).status();
}

}  // namespace tensorferry::tools::bench
