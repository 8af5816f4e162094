// Both ends of the handshake, against each other and against peers that misbehave.
#include "tensorferry/engine/nixl/nixl_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tensorferry/base/error.h"
#include "tensorferry/base/poll.h"
#include "tensorferry/engine/nixl/nixl_listener.h"
#include "tensorferry/engine/tcp_socket.h"

namespace tensorferry::engine {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Instant Now() { return RealClock().Now(); }

absl::StatusOr<std::string> RunToEnd(NixlHandshake* handshake) {
  while (!handshake->Step(Now())) {
    std::vector<pollfd> waits = {{handshake->fd(), handshake->events(), 0}};
    (void)PollUntil(&waits, handshake->deadline(), Now());
  }
  return handshake->TakeResult();
}

absl::StatusOr<std::string> Fetch(const SocketAddress& from, Duration timeout = 10s) {
  NixlHandshake handshake(from, Now() + timeout);
  return RunToEnd(&handshake);
}

// A listener with a thread that serves it.
class Served {
 public:
  explicit Served(const char* address, std::string metadata) : metadata_(std::move(metadata)) {
    auto listener = NixlListener::Create(*SocketAddress::Parse(address));
    if (!listener.ok()) std::abort();
    listener_ = *std::move(listener);
    thread_ = std::thread([this] {
      while (!stop_) {
        std::vector<pollfd> waits;
        listener_->AddWaits(&waits);
        (void)PollUntil(&waits, Now() + 5ms, Now());
        listener_->Step(serving_ ? std::string_view(metadata_) : std::string_view());
        connections_ = listener_->connections();
      }
    });
  }
  ~Served() {
    stop_ = true;
    thread_.join();
  }
  SocketAddress address() const { return listener_->address(); }
  void SetServing(bool serving) { serving_ = serving; }
  size_t connections() const { return connections_; }

 private:
  std::string metadata_;
  std::unique_ptr<NixlListener> listener_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> serving_ = true;
  std::atomic<size_t> connections_ = 0;
  std::thread thread_;
};

// Accepts one connection and does with it what the test wants.
class OneConnection {
 public:
  explicit OneConnection(std::function<void(int)> serve) {
    auto listener = ListenTcp(*SocketAddress::Parse("127.0.0.1:0"));
    if (!listener.ok()) std::abort();
    address_ = listener->address;
    thread_ = std::thread([serve = std::move(serve), socket = std::move(listener->socket)] {
      pollfd wait{socket.get(), POLLIN, 0};
      if (::poll(&wait, 1, 10'000) != 1) return;
      const UniqueFd connection(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      serve(connection.get());
    });
  }
  ~OneConnection() { thread_.join(); }
  const SocketAddress& address() const { return address_; }

 private:
  SocketAddress address_;
  std::thread thread_;
};

TEST(NixlHandshakeTest, FetchesWhatTheListenerServes) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0"}) {
    const Served served(address, std::string(300'000, 'm'));
    const auto metadata = Fetch(served.address());
    ASSERT_TRUE(metadata.ok()) << metadata.status();
    EXPECT_EQ(*metadata, std::string(300'000, 'm'));
  }
}

TEST(NixlHandshakeTest, WaitsWhileThereIsNoAgent) {
  Served served("127.0.0.1:0", "metadata");
  served.SetServing(false);
  NixlHandshake handshake(served.address(), Now() + 10s);
  while (served.connections() == 0) {
    ASSERT_FALSE(handshake.Step(Now()));
    std::this_thread::yield();
  }
  EXPECT_FALSE(handshake.Step(Now()));
  served.SetServing(true);
  EXPECT_EQ(*RunToEnd(&handshake), "metadata");
}

TEST(NixlHandshakeTest, NobodyListens) {
  auto listener = ListenTcp(*SocketAddress::Parse("127.0.0.1:0"));
  const SocketAddress free = listener->address;
  listener->socket.Reset();
  EXPECT_EQ(ReasonOf(Fetch(free).status()), Reason::kUnreachable);
}

TEST(NixlHandshakeTest, AListenerThatSaysNothingIsATimeout) {
  const auto listener = ListenTcp(*SocketAddress::Parse("127.0.0.1:0"));
  const auto metadata = Fetch(listener->address, 50ms);
  EXPECT_EQ(ReasonOf(metadata.status()), Reason::kTimedOut);
  EXPECT_THAT(std::string(metadata.status().message()), HasSubstr(listener->address.ToString()));
}

TEST(NixlHandshakeTest, WhatIsNoAnswerIsAProtocolError) {
  const std::string answers[] = {std::string(16, '\xff'), wire::EncodeNixlMessage("HTTP/1.1 400"),
                                 wire::EncodeNixlMessage("")};
  for (const std::string& answer : answers) {
    const OneConnection peer([&](int fd) { (void)::send(fd, answer.data(), answer.size(), 0); });
    EXPECT_EQ(ReasonOf(Fetch(peer.address()).status()), Reason::kProtocol);
  }
}

TEST(NixlHandshakeTest, AnEarlyEndIsPeerClosed) {
  const OneConnection peer([](int fd) {
    char byte;
    (void)::recv(fd, &byte, 1, 0);
    const std::string half = wire::EncodeNixlMetadata("metadata").substr(0, 12);
    (void)::send(fd, half.data(), half.size(), 0);
  });
  EXPECT_EQ(ReasonOf(Fetch(peer.address()).status()), Reason::kPeerClosed);
}

// A stock listener leaks a descriptor for each orderly close: ours must come as a reset.
TEST(NixlHandshakeTest, EndsItsConnectionByAReset) {
  std::atomic<int> error = 0;
  {
    const OneConnection peer([&](int fd) {
      char buffer[64];
      (void)::recv(fd, buffer, sizeof buffer, 0);
      const std::string answer = wire::EncodeNixlMetadata("metadata");
      (void)::send(fd, answer.data(), answer.size(), 0);
      error = ::recv(fd, buffer, sizeof buffer, 0) == 0 ? 0 : errno;
    });
    EXPECT_TRUE(Fetch(peer.address()).ok());
  }
  EXPECT_EQ(error, ECONNRESET);
}

int Connect(const SocketAddress& address) {
  sockaddr_storage storage;
  const socklen_t length = address.ToSockaddr(&storage);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0) std::abort();
  return fd;
}

TEST(NixlListenerTest, TakesNobodysMetadataAndAnswersAgain) {
  const Served served("127.0.0.1:0", "mine");
  const UniqueFd fd(Connect(served.address()));
  const std::string said =
      wire::EncodeNixlMetadata("yours") + wire::EncodeNixlMessage(wire::kNixlFetch) +
      wire::EncodeNixlMessage("NIXLCOMM:INVL") + wire::EncodeNixlMessage(wire::kNixlFetch);
  for (const char byte : said) ASSERT_EQ(::send(fd.get(), &byte, 1, 0), 1);
  const std::string expected = wire::EncodeNixlMetadata("mine") + wire::EncodeNixlMetadata("mine");
  std::string got(expected.size(), '\0');
  ASSERT_EQ(::recv(fd.get(), got.data(), got.size(), MSG_WAITALL),
            static_cast<ssize_t>(got.size()));
  EXPECT_EQ(got, expected);
}

TEST(NixlListenerTest, GarbageEndsOneConnectionOnly) {
  const Served served("127.0.0.1:0", "mine");
  const UniqueFd bad(Connect(served.address()));
  const std::string garbage(64, '\xee');
  ASSERT_EQ(::send(bad.get(), garbage.data(), garbage.size(), 0), 64);
  char byte;
  EXPECT_LE(::recv(bad.get(), &byte, 1, 0), 0);
  EXPECT_TRUE(Fetch(served.address()).ok());
}

TEST(NixlListenerTest, ManyThatStayDoNotShutOutTheNext) {
  const Served served("127.0.0.1:0", "mine");
  std::vector<UniqueFd> kept;
  for (int i = 0; i < 300; ++i) kept.emplace_back(Connect(served.address()));
  EXPECT_TRUE(Fetch(served.address()).ok());
  EXPECT_LE(served.connections(), 256U);
}

TEST(NixlListenerTest, ListensWhereItIsToldOnly) {
  const auto first = NixlListener::Create(*SocketAddress::Parse("127.0.0.1:0"));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->address().HostText(), "127.0.0.1");
  EXPECT_EQ(ReasonOf(NixlListener::Create((*first)->address()).status()), Reason::kAddressInUse);
}

}  // namespace
}  // namespace tensorferry::engine
