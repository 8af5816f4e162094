#include "tensorferry/engine/local/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/engine/local/local_testing.h"

namespace tensorferry::engine {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

bool Exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

TEST(UnixListener, MakesAFileOnlyForItsOwnerAndRemovesIt) {
  TempDir dir;
  const std::string path = dir / "s";
  {
    auto listener = UnixListener::Listen(path);
    ASSERT_TRUE(listener.ok()) << listener.status();
    struct stat info;
    ASSERT_EQ(::lstat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
    EXPECT_TRUE(ConnectUnix(path).ok());
  }
  EXPECT_FALSE(Exists(path));
}

TEST(UnixListener, ReplacesAStaleFile) {
  TempDir dir;
  const std::string path = dir / "s";
  {
    // Bound and closed without unlink: what a killed gateway leaves behind.
    UniqueFd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(Exists(path));
  EXPECT_EQ(ReasonText(ConnectUnix(path).status()), "unreachable");
  auto listener = UnixListener::Listen(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ConnectUnix(path).ok());
}

TEST(UnixListener, LeavesALiveOneAlone) {
  TempDir dir;
  const std::string path = dir / "s";
  auto first = UnixListener::Listen(path);
  ASSERT_TRUE(first.ok());
  const absl::Status second = UnixListener::Listen(path).status();
  EXPECT_EQ(ReasonText(second), "address_in_use");
  EXPECT_THAT(Message(second), HasSubstr(path));
  EXPECT_TRUE(ConnectUnix(path).ok());
}

TEST(UnixListener, IsStaleWhenOnlyAForkedChildHoldsItOpen) {
  TempDir dir;
  const std::string path = dir / "s";
  ChildProcess gateway([&] {
    auto listener = std::make_shared<UnixListener>(*UnixListener::Listen(path));
    return [listener](std::string_view, std::string_view) -> std::string {
      return std::to_string(ForkSleeper());
    };
  });
  const pid_t grandchild = std::stoi(gateway.Ask("fork"));
  EXPECT_EQ(ReasonText(UnixListener::Listen(path).status()), "address_in_use");
  gateway.Kill();
  EXPECT_TRUE(UnixListener::Listen(path).ok());
  ::kill(grandchild, SIGKILL);
}

TEST(UnixListener, RemovesOnlyItsOwnFile) {
  TempDir dir;
  const std::string path = dir / "s";
  std::optional<UnixListener> first = *UnixListener::Listen(path);
  ASSERT_EQ(::unlink(path.c_str()), 0);  // an over-eager clean-up
  auto second = UnixListener::Listen(path);
  ASSERT_TRUE(second.ok());
  first.reset();
  EXPECT_TRUE(ConnectUnix(path).ok());
}

TEST(UnixListener, AForkedChildLeavesTheFile) {
  TempDir dir;
  const std::string path = dir / "s";
  auto listener = std::make_unique<UnixListener>(*UnixListener::Listen(path));
  ChildProcess child([&] {
    return [&](std::string_view, std::string_view) -> std::string {
      listener.reset();
      return "done";
    };
  });
  ASSERT_EQ(child.Ask("reset"), "done");
  EXPECT_TRUE(Exists(path));
}

TEST(UnixListener, NamesWhatIsWrongWithAPath) {
  TempDir dir;
  struct Case {
    std::string path;
    std::string says;
  };
  std::ofstream(dir / "file") << "x";
  ASSERT_EQ(::symlink("nowhere", (dir / "link").c_str()), 0);
  const std::string too_long = dir / std::string(200, 'x');
  for (const Case& c : std::vector<Case>{
           {"", "absolute"},
           {"relative.sock", "absolute"},
           {too_long, "limit is 107"},
           {std::string("/tmp/a\0b", 8), "NUL"},
           {dir / "missing/s", "directory does not exist"},
           {dir / "file/s", "directory does not exist"},
           {dir / "file", "not a socket"},
           {dir / "link", "not a socket"},
           {dir.path(), "not a socket"},
       }) {
    SCOPED_TRACE(c.path);
    const absl::Status status = UnixListener::Listen(c.path).status();
    EXPECT_EQ(ReasonText(status), "bad_address") << status;
    EXPECT_THAT(Message(status), HasSubstr(c.says));
  }
  EXPECT_TRUE(Exists(dir / "file"));
}

TEST(UnixListener, TakesTheLongestPath) {
  TempDir dir;
  const std::string path = dir / std::string(kMaxSocketPathBytes - dir.path().size() - 1, 'x');
  ASSERT_EQ(path.size(), kMaxSocketPathBytes);
  auto listener = UnixListener::Listen(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ConnectUnix(path).ok());
}

TEST(UnixListener, OfManyThatStartAtOnceOneWins) {
  TempDir dir;
  const std::string path = dir / "s";
  { auto stale = UnixListener::Listen(path); }
  std::vector<std::unique_ptr<ChildProcess>> gateways;
  for (int i = 0; i < 6; ++i) {
    gateways.push_back(std::make_unique<ChildProcess>([&] {
      auto kept = std::make_shared<std::optional<UnixListener>>();
      return [kept, path](std::string_view, std::string_view) -> std::string {
        auto listener = UnixListener::Listen(path);
        if (listener.ok()) kept->emplace(*std::move(listener));
        return ReasonText(listener.status());
      };
    }));
  }
  for (auto& gateway : gateways) gateway->Tell("listen");
  int ok = 0;
  for (auto& gateway : gateways) {
    const std::string answer = gateway->Hear();
    if (answer == "ok") {
      ++ok;
    } else {
      EXPECT_EQ(answer, "address_in_use");
    }
  }
  EXPECT_EQ(ok, 1);
  EXPECT_TRUE(ConnectUnix(path).ok());
}

TEST(ConnectUnix, NamesWhyNot) {
  TempDir dir;
  EXPECT_EQ(ReasonText(ConnectUnix(dir / "missing").status()), "unreachable");
  EXPECT_EQ(ReasonText(ConnectUnix("relative").status()), "bad_address");
  std::ofstream(dir / "file") << "x";
  EXPECT_EQ(ReasonText(ConnectUnix(dir / "file").status()), "unreachable");
  UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (dir / "stream").c_str());
  ASSERT_EQ(::bind(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(stream.get(), 1), 0);
  EXPECT_EQ(ReasonText(ConnectUnix(dir / "stream").status()), "bad_address");
}

// Two connected ends.
struct Pair {
  Pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) abort();
    a.Reset(ends[0]);
    b.Reset(ends[1]);
  }
  UniqueFd a, b;
};

TEST(Packets, CarryDescriptorsThatAreNotInherited) {
  Pair pair;
  UniqueFd memory = MakeMemfd(4096);
  const std::array<std::byte, 3> sent = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(SendWithFds(pair.a.get(), sent, {memory.get(), memory.get(), memory.get()}));
  std::array<std::byte, 16> buffer = {};
  auto packet = ReceiveWithFds(pair.b.get(), buffer);
  ASSERT_TRUE(packet.ok() && packet->has_value());
  EXPECT_EQ((*packet)->size, 3u);
  EXPECT_EQ(buffer[2], std::byte{3});
  ASSERT_EQ((*packet)->fds.size(), 3u);
  for (const UniqueFd& fd : (*packet)->fds) {
    EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_GE(::fcntl(fd.get(), F_GET_SEALS), 0);
  }
}

TEST(Packets, NoneYetAndNoMore) {
  Pair pair;
  std::array<std::byte, 16> buffer;
  auto none = ReceiveWithFds(pair.b.get(), buffer);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  pair.a.Reset();
  auto end = ReceiveWithFds(pair.b.get(), buffer);
  ASSERT_TRUE(end.ok() && end->has_value());
  EXPECT_EQ((*end)->size, 0u);
}

TEST(Packets, TooMuchIsRefusedAndLeaksNothing) {
  Pair pair;
  UniqueFd memory = MakeMemfd(4096);
  std::array<std::byte, 4> buffer;
  const size_t before = OpenFds();

  const std::array<std::byte, 5> large = {};
  ASSERT_TRUE(SendWithFds(pair.a.get(), large, {memory.get()}));
  EXPECT_EQ(ReasonText(ReceiveWithFds(pair.b.get(), buffer).status()), "protocol_error");

  // Four descriptors, which SendWithFds would not send.
  const int fds[4] = {memory.get(), memory.get(), memory.get(), memory.get()};
  char byte = 0;
  iovec part = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds, sizeof(fds));
  ASSERT_EQ(::sendmsg(pair.a.get(), &message, 0), 1);
  EXPECT_EQ(ReasonText(ReceiveWithFds(pair.b.get(), buffer).status()), "protocol_error");

  EXPECT_EQ(OpenFds(), before);
}

TEST(Packets, AGonePeerIsAnError) {
  Pair pair;
  const std::array<std::byte, 1> one = {};
  pair.b.Reset();
  EXPECT_FALSE(SendWithFds(pair.a.get(), one, {}));
  EXPECT_EQ(errno, EPIPE);
}

TEST(PeerPidfd, IsReadableOnceThePeerHasDied) {
  TempDir dir;
  const std::string path = dir / "s";
  auto listener = UnixListener::Listen(path);
  ASSERT_TRUE(listener.ok());
  ChildProcess child([&] {
    return [&](std::string_view, std::string_view) -> std::string {
      static UniqueFd socket;
      socket = *ConnectUnix(path);
      return "connected";
    };
  });
  ASSERT_EQ(child.Ask("connect"), "connected");
  UniqueFd socket(::accept4(listener->fd(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(socket);
  EXPECT_EQ(PeerCredentials(socket.get())->pid, child.pid());
  UniqueFd process = OpenPeerPidfd(socket.get());
  ASSERT_TRUE(process);
  pollfd wait = {.fd = process.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0);
  child.Kill();
  EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
}

}  // namespace
}  // namespace tensorferry::engine
