// One reader's connection on the gateway's side: a state machine that never blocks.
//
//   connection.Note(event.events);                       // what epoll said, edge-triggered
//   switch (connection.TakeTurn(service, now)) { ... }   // reads requests, sends a bounded piece
//
// Requests are answered in order, one at a time; what a reader sends ahead stays in the kernel's
// buffer, but for a few messages. The lease is pinned from the request until the last byte is in
// the kernel or the connection ends.
// Thread-safety: one thread.
// Ownership: owns the socket and the pin.
#ifndef TENSORFERRY_ENGINE_TCP_TCP_SERVED_CONNECTION_H_
#define TENSORFERRY_ENGINE_TCP_TCP_SERVED_CONNECTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/fd.h"
#include "tensorferry/base/net.h"
#include "tensorferry/engine/export_engine.h"
#include "tensorferry/wire/tcp_messages.h"

namespace tensorferry::engine {

// What the connections of one engine share.
struct TcpService {
  LeaseSource* leases = nullptr;
  wire::InstanceId instance = {};
  Duration stall_timeout = {};
};

class TcpServedConnection {
 public:
  // With `refuse`, the first read is answered kBusy, and that is all.
  TcpServedConnection(UniqueFd fd, const SocketAddress& peer, bool refuse);

  enum class Turn {
    kAgain,    // has more to do: give it another turn after the others
    kBlocked,  // nothing to do until epoll says so
    kClose,    // over; status() says why
  };
  void Note(uint32_t epoll_events);
  Turn TakeTurn(const TcpService& service, Instant now);

  bool refuses() const { return refuse_; }
  // A read is being answered.
  bool answering() const { return answering_; }
  // When to give up on a reader that does not read; kNever unless answering.
  Instant cut_off() const { return answering_ ? std::min(stalled_at_, deadline_) : kNever; }
  // kProtocol for a peer that makes no sense; OK for one that just left.
  const absl::Status& status() const { return status_; }
  // "10.0.0.6:51234, lease 7: 65536 of 1048576 bytes taken", for logs.
  std::string Describe() const;
  int fd() const { return fd_.get(); }

 private:
  enum class Io { kDone, kBlocked, kFailed };
  Io Receive();
  Io Send(const TcpService& service, Instant now);
  bool TakeRequest(const TcpService& service, Instant now);
  void Answer(const TcpService& service, const wire::TcpRequest& request);

  const UniqueFd fd_;
  const SocketAddress peer_;
  const bool refuse_;
  absl::Status status_;

  // What edge-triggered epoll has said and no system call has contradicted since.
  bool readable_ = true;
  bool writable_ = true;
  bool hung_up_ = false;

  std::array<std::byte, 4 * wire::kTcpRequestBytes> input_;
  size_t input_used_ = 0;
  int64_t budget_ = 0;  // bytes left in this turn

  bool answering_ = false;
  std::array<std::byte, wire::kTcpAnswerBytes> header_;
  PinnedBytes payload_;
  uint64_t sent_ = 0;  // of header and payload together
  uint64_t lease_ = 0;
  Instant deadline_ = kNever;
  Instant stalled_at_ = kNever;
};

}  // namespace tensorferry::engine

#endif  // TENSORFERRY_ENGINE_TCP_TCP_SERVED_CONNECTION_H_
