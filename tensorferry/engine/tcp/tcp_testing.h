// Helpers for tests of engine/tcp: peers whose every byte the test chooses.
//
//   RawConnection reader = RawConnection::To(engine->address());
//   reader.Send(wire::EncodeTcpRequest(request));
//   EXPECT_EQ(reader.ReadAnswer()->length, 4096);
//
//   ScriptedGateway gateway([](RawConnection& c, int nth) {      // the nth connection, on a thread
//     const auto request = c.ReadRequest();
//     c.Send("garbage");
//   });
//
// Blocking, with kTestLimit on every call.
// Thread-safety: one thread per connection.
#ifndef TENSORFERRY_ENGINE_TCP_TCP_TESTING_H_
#define TENSORFERRY_ENGINE_TCP_TCP_TESTING_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/wire/tcp_messages.h"

namespace tensorferry::engine {

// "127.0.0.1:0" and "[::1]:0".
SocketAddress AnyLoopbackPort();
SocketAddress AnyLoopbackPortV6();

class RawConnection {
 public:
  explicit RawConnection(UniqueFd fd);
  static RawConnection To(const SocketAddress& address);

  // False when the peer has closed.
  bool Send(std::span<const std::byte> bytes);
  bool Send(std::string_view text) { return Send(std::as_bytes(std::span(text))); }
  // As much as goes without waiting.
  size_t SendSome(std::span<const std::byte> bytes);
  // Exactly `count` bytes; fewer when the peer closed before.
  std::vector<std::byte> Read(size_t count);
  std::optional<wire::TcpAnswer> ReadAnswer();
  std::optional<wire::TcpRequest> ReadRequest();
  // Waits for the peer to close, reading what still comes.
  bool ReadsEnd();

  int fd() const { return fd_.get(); }
  void Close() { fd_.Reset(); }

 private:
  UniqueFd fd_;
};

// A listening socket: accepts only when told to.
class Listener {
 public:
  // Port 0 picks one.
  explicit Listener(const SocketAddress& address = AnyLoopbackPort(), int backlog = 64);
  // Has a port that refuses connections, until Listen().
  static Listener Closed();
  void Listen(int backlog = 64);
  const SocketAddress& address() const { return address_; }
  RawConnection Accept();
  // Nobody has connected and is waiting.
  bool Untouched() const;
  int fd() const { return fd_.get(); }

 private:
  struct Unopened {};
  Listener(Unopened, const SocketAddress& address);
  UniqueFd fd_;
  SocketAddress address_;
};

// An address whose SYNs are swallowed, until Open().
class BlackHole {
 public:
  BlackHole();
  const SocketAddress& address() const { return listener_.address(); }
  // From now on connections are made; one that waits is, at the kernel's next try, within a second.
  void Open();
  // After Open().
  RawConnection Accept() { return listener_.Accept(); }

 private:
  Listener listener_;
  std::vector<UniqueFd> fillers_;
};

// Runs a script for every connection, one after the other.
class ScriptedGateway {
 public:
  using Script = std::function<void(RawConnection& connection, int nth)>;
  explicit ScriptedGateway(Script script);
  ~ScriptedGateway();
  const SocketAddress& address() const { return listener_.address(); }
  int connections() const { return connections_.load(); }

 private:
  Listener listener_;
  std::atomic<int> connections_ = 0;
  std::thread thread_;
};

// Answers a read with `payload` and its right header.
void AnswerWith(RawConnection& connection, const wire::TcpRequest& request,
                std::span<const std::byte> payload);

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_TCP_TCP_TESTING_H_
