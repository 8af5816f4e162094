// engine/local against peers that do not keep to the protocol.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/host.h"
#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/local/local_export_engine.h"
#include "tensorferry/engine/local/local_pull_engine.h"
#include "tensorferry/engine/local/local_testing.h"
#include "tensorferry/engine/local/shared_memory.h"
#include "tensorferry/engine/local/table.h"
#include "tensorferry/engine/local/unix_socket.h"
#include "tensorferry/wire/local_messages.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool Readable(int fd) {
  pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, 60'000) == 1;
}

// A worker without the engine: does whatever the test wants.
class RawWorker {
 public:
  explicit RawWorker(const std::string& path) : socket_(*ConnectUnix(path)) {}

  // The welcome's status; 65535 when there is no welcome.
  uint16_t Receive() {
    std::array<std::byte, wire::kLocalWelcomeBytes> buffer;
    if (!Readable(socket_.get())) return 65535;
    auto packet = ReceiveWithFds(socket_.get(), buffer);
    if (!packet.ok() || !packet->has_value()) return 65535;
    const auto welcome = wire::DecodeLocalWelcome(std::span(buffer).first((*packet)->size));
    if (!welcome.ok()) return 65535;
    if (welcome->status == 0) {
      entries_ = welcome->table_entries;
      board_.emplace(*SharedMemory::Map((*packet)->fds[2].get(), entries_ * sizeof(ClaimWord),
                                        SharedMemory::Access::kReadWrite, "board"));
    }
    return welcome->status;
  }
  bool Send(const void* bytes, size_t size) {
    return ::send(socket_.get(), bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }
  bool WaitClosed() {
    char byte;
    return Readable(socket_.get()) && ::recv(socket_.get(), &byte, 1, 0) <= 0;
  }
  ClaimWord& Word(uint64_t id) { return reinterpret_cast<ClaimWord*>(board_->data())[id]; }
  uint64_t entries() const { return entries_; }
  int socket() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  uint64_t entries_ = 0;
  std::optional<SharedMemory> board_;
};

class HostileWorkerTest : public ::testing::Test {
 protected:
  HostileWorkerTest() { StartGateway({}); }

  void StartGateway(LocalExportOptions options) {
    gateway_.reset();
    options.socket_path = path_;
    auto engine = LocalExportEngine::Create(options);
    if (!engine.ok()) std::abort();
    gateway_ = *std::move(engine);
    if (!gateway_->Start(leases_.arena(), &leases_).ok()) std::abort();
  }
  wire::Descriptor Publish() {
    lease_ = leases_.Add(100);
    gateway_->Publish(lease_);
    return leases_.DescriptorOf(lease_, {gateway_->way()});
  }
  absl::StatusOr<Landed> View(const wire::Descriptor& d) {
    auto op = worker_->Start({.descriptor = &d, .length = d.nbytes});
    return DriveOp(*op);
  }
  // A worker that behaves is served and heard.
  void ExpectServes() {
    const wire::Descriptor d = Publish();
    auto view = View(d);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_FALSE(gateway_->Retire(lease_.ref));
    view = absl::CancelledError();
    const wire::LeaseRef ref = lease_.ref;
    EXPECT_TRUE(leases_.WaitUntil([&] {
      const auto quiesced = leases_.quiesced();
      return !quiesced.empty() && quiesced.back() == ref;
    }));
  }

  TempDir dir_;
  const std::string path_ = dir_ / "gw.sock";
  // Outlives the gateway. Counts what a flood says instead of keeping it.
  struct Leases : FakeLeaseSource {
    void Done(const wire::LeaseRef&) override { ++done_calls; }
    std::atomic<uint64_t> done_calls = 0;
  } leases_;
  PublishedLease lease_;
  std::unique_ptr<LocalExportEngine> gateway_;
  std::unique_ptr<PullEngine> worker_ = CreateLocalPullEngine({});
};

TEST_F(HostileWorkerTest, GarbageEndsOnlyItsOwnConnection) {
  const wire::Descriptor d = Publish();
  const auto view = View(d);
  ASSERT_TRUE(view.ok());
  const auto good = wire::EncodeLocalRelease({.lease = lease_.ref});
  std::vector<std::string> packets = {"",
                                      "x",
                                      std::string(47, '\0'),
                                      std::string(48, 'x'),
                                      std::string(49, '\0'),
                                      std::string(100'000, 'x')};
  packets.emplace_back(reinterpret_cast<const char*>(good.data()), good.size());
  packets.back()[5] = 1;  // padding
  packets.emplace_back(reinterpret_cast<const char*>(good.data()), good.size());
  packets.back() += '\0';
  for (const std::string& packet : packets) {
    RawWorker hostile(path_);
    ASSERT_EQ(hostile.Receive(), 0);
    ASSERT_TRUE(hostile.Send(packet.data(), packet.size()));
    EXPECT_TRUE(hostile.WaitClosed()) << packet.size();
  }
  EXPECT_TRUE(Eventually([&] { return gateway_->workers() == 1; }));
  EXPECT_EQ(leases_.done_calls, 0u);
  EXPECT_FALSE(gateway_->Retire(lease_.ref));
}

TEST_F(HostileWorkerTest, DescriptorsThatItSendsAreNotTaken) {
  RawWorker hostile(path_);
  ASSERT_EQ(hostile.Receive(), 0);
  const size_t fds = OpenFds();
  UniqueFd memory = MakeMemfd(4096);
  const auto release = wire::EncodeLocalRelease({.lease = {.id = 1, .generation = 1}});
  ASSERT_TRUE(SendWithFds(hostile.socket(), release, {memory.get(), memory.get()}));
  EXPECT_TRUE(Eventually([&] { return leases_.done_calls == 1; }));
  memory.Reset();
  EXPECT_EQ(OpenFds(), fds);
}

TEST_F(HostileWorkerTest, JunkOnItsBoardHoldsNothing) {
  RawWorker hostile(path_);
  ASSERT_EQ(hostile.Receive(), 0);
  for (uint64_t i = 0; i < hostile.entries(); ++i) hostile.Word(i) = ~uint64_t{0} - i;
  Publish();
  EXPECT_TRUE(gateway_->Retire(lease_.ref));
  hostile.Word(lease_.ref.id) = lease_.ref.generation;  // too late
  EXPECT_THAT(leases_.quiesced(), IsEmpty());
  ExpectServes();
}

TEST_F(HostileWorkerTest, AClaimLeftOnTheBoardGoesWithTheConnection) {
  auto hostile = std::make_unique<RawWorker>(path_);
  ASSERT_EQ(hostile->Receive(), 0);
  Publish();
  hostile->Word(lease_.ref.id) = lease_.ref.generation;
  EXPECT_FALSE(gateway_->Retire(lease_.ref));
  hostile.reset();
  EXPECT_TRUE(leases_.WaitUntil([&] { return !leases_.quiesced().empty(); }));
  EXPECT_THAT(leases_.quiesced(), ElementsAre(lease_.ref));
}

TEST_F(HostileWorkerTest, AReleaseWithoutAMessageIsFound) {
  RawWorker silent(path_);
  ASSERT_EQ(silent.Receive(), 0);
  Publish();
  silent.Word(lease_.ref.id) = lease_.ref.generation;
  EXPECT_FALSE(gateway_->Retire(lease_.ref));
  silent.Word(lease_.ref.id) = 0;
  EXPECT_TRUE(leases_.WaitUntil([&] { return !leases_.quiesced().empty(); }));
  EXPECT_THAT(leases_.quiesced(), ElementsAre(lease_.ref));
}

TEST_F(HostileWorkerTest, AFloodKeepsNobodyWaiting) {
  RawWorker hostile(path_);
  ASSERT_EQ(hostile.Receive(), 0);
  std::atomic<bool> stop = false;
  const int flags = ::fcntl(hostile.socket(), F_GETFL);
  ASSERT_EQ(::fcntl(hostile.socket(), F_SETFL, flags & ~O_NONBLOCK), 0);
  std::thread flood([&] {
    const auto release = wire::EncodeLocalRelease({.lease = {.id = 1, .generation = 1}});
    while (!stop && hostile.Send(release.data(), release.size())) {
    }
  });
  ASSERT_TRUE(Eventually([&] { return leases_.done_calls > 100; }));
  for (int i = 0; i < 5; ++i) {
    worker_ = CreateLocalPullEngine({.connect_timeout = kTestLimit});
    ExpectServes();
  }
  stop = true;
  flood.join();
}

TEST_F(HostileWorkerTest, ConnectionsBeyondTheLimitAreRefused) {
  StartGateway({.max_workers = 3});
  std::vector<std::unique_ptr<RawWorker>> crowd;
  for (int i = 0; i < 3; ++i) {
    crowd.push_back(std::make_unique<RawWorker>(path_));
    EXPECT_EQ(crowd.back()->Receive(), 0);
  }
  for (int i = 0; i < 3; ++i) {
    RawWorker refused(path_);
    EXPECT_EQ(refused.Receive(), static_cast<uint16_t>(Reason::kBusy));
    EXPECT_TRUE(refused.WaitClosed());
  }
  crowd.pop_back();
  ASSERT_TRUE(Eventually([&] { return gateway_->workers() == 2; }));
  ExpectServes();
}

TEST_F(HostileWorkerTest, WhoNeverReadsItsWelcomeHoldsUpNobody) {
  std::vector<std::unique_ptr<RawWorker>> crowd;
  for (int i = 0; i < 50; ++i) crowd.push_back(std::make_unique<RawWorker>(path_));
  ExpectServes();
  crowd.clear();
  EXPECT_TRUE(Eventually([&] { return gateway_->workers() == 1; }));
}

TEST(LocalExportLimits, OutOfDescriptorsIsNotTheEnd) {
  TempDir dir;
  const std::string path = dir / "gw.sock";
  ChildProcess gateway([]() -> ChildProcess::Handler {
    return [inner = MakeGateway()](std::string_view verb, std::string_view argument) {
      if (verb != "limit") return inner(verb, argument);
      // Room for three more: one worker's.
      rlim_t limit = 0;
      for (int room = 0; room < 3; ++limit) {
        if (::fcntl(static_cast<int>(limit), F_GETFD) < 0) ++room;
      }
      const rlimit small = {.rlim_cur = limit, .rlim_max = limit};
      return std::string(::setrlimit(RLIMIT_NOFILE, &small) == 0 ? "ok" : "failed");
    };
  });
  ASSERT_EQ(gateway.Ask("start", path), "ok");
  ASSERT_EQ(gateway.Ask("limit"), "ok");
  auto first = std::make_unique<RawWorker>(path);
  ASSERT_EQ(first->Receive(), 0);
  RawWorker second(path);
  pollfd wait = {.fd = second.socket(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wait, 1, 50), 0);  // a while, for the gateway to meet the limit
  first.reset();
  EXPECT_EQ(second.Receive(), 0);
}

// A gateway without the engine: hands every connection to `answer`, which may send what it likes.
class RawGateway {
 public:
  RawGateway(const std::string& path, std::function<void(int socket)> answer)
      : listener_(*UnixListener::Listen(path)), answer_(std::move(answer)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~RawGateway() {
    (void)::eventfd_write(stop_.get(), 1);
    thread_.join();
  }

 private:
  void Run() {
    std::vector<UniqueFd> kept;
    for (;;) {
      std::array<pollfd, 2> waits = {{{.fd = listener_.fd(), .events = POLLIN, .revents = 0},
                                      {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
      ::poll(waits.data(), waits.size(), -1);
      if (waits[1].revents != 0) return;
      UniqueFd socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!answer_) continue;  // closes it
      answer_(socket.get());
      kept.push_back(std::move(socket));
    }
  }

  UnixListener listener_;
  const std::function<void(int)> answer_;
  const UniqueFd stop_{::eventfd(0, EFD_CLOEXEC)};
  std::thread thread_;
};

class HostileGatewayTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kArena = 1 << 16;
  static constexpr uint64_t kEntries = 16;

  HostileGatewayTest() {
    descriptor_.instance = {1};
    descriptor_.lease = {.id = 1, .generation = 5, .token = {}};
    descriptor_.nbytes = 100;
    descriptor_.ways = {wire::LocalWay{ThisHost().boot_id, path_}};
    welcome_ = {.instance = {1},
                .arena_bytes = kArena,
                .table_entries = kEntries,
                .max_claim_bytes = kArena};
  }

  // What a pull gets from a gateway that answers so.
  std::string Pull(std::function<void(int)> answer) {
    RawGateway gateway(path_, std::move(answer));
    auto engine = CreateLocalPullEngine({.connect_timeout = timeout_});
    auto op = engine->Start({.descriptor = &descriptor_, .length = descriptor_.nbytes});
    return ReasonText(DriveOp(*op).status());
  }
  std::string PullBytes(std::string packet) {
    return Pull(
        [packet](int socket) { (void)::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL); });
  }
  std::string PullWelcome(const wire::LocalWelcome& welcome) {
    return Pull([=](int socket) { SendWithFds(socket, wire::EncodeLocalWelcome(welcome), {}); });
  }

  TempDir dir_;
  const std::string path_ = dir_ / "gw.sock";
  wire::Descriptor descriptor_;
  wire::LocalWelcome welcome_;
  Duration timeout_ = kTestLimit;
};

TEST_F(HostileGatewayTest, WhatItSaysIsChecked) {
  const size_t fds = OpenFds();
  EXPECT_EQ(Pull(nullptr), "peer_closed");
  EXPECT_EQ(PullBytes(""), "peer_closed");
  EXPECT_EQ(PullBytes("x"), "protocol_error");
  EXPECT_EQ(PullBytes(std::string(64, 'x')), "protocol_error");
  const auto good = wire::EncodeLocalWelcome(welcome_);
  std::string packet(reinterpret_cast<const char*>(good.data()), good.size());
  EXPECT_EQ(PullBytes(packet), "protocol_error");  // no descriptors
  EXPECT_EQ(PullBytes(packet + '\0'), "protocol_error");
  EXPECT_EQ(PullBytes(packet.substr(0, 63)), "protocol_error");
  packet[3] = '2';
  EXPECT_EQ(PullBytes(packet), "unknown_version");
  EXPECT_EQ(PullWelcome({.status = 999}), "protocol_error");
  EXPECT_EQ(PullWelcome({.status = static_cast<uint16_t>(Reason::kBusy)}), "busy");
  EXPECT_EQ(PullWelcome({.status = static_cast<uint16_t>(Reason::kUidMismatch)}), "uid_mismatch");
  timeout_ = milliseconds(20);
  EXPECT_EQ(Pull([](int) {}), "unreachable");
  EXPECT_EQ(OpenFds(), fds);
}

TEST_F(HostileGatewayTest, WhatItSendsIsChecked) {
  UniqueFd arena = MakeMemfd(kArena);
  UniqueFd table = MakeMemfd(kEntries * sizeof(TableEntry));
  UniqueFd board = MakeMemfd(kEntries * sizeof(ClaimWord));
  UniqueFd unsealed = MakeMemfd(kArena, false);
  const size_t fds = OpenFds();
  const auto pull = [&](const UniqueFd& a, const UniqueFd& t, const UniqueFd& b) {
    return Pull([&](int socket) {
      SendWithFds(socket, wire::EncodeLocalWelcome(welcome_), {a.get(), t.get(), b.get()});
    });
  };
  EXPECT_EQ(pull(arena, table, board), "lease_ended");  // an empty table, but a good gateway
  EXPECT_EQ(pull(unsealed, table, board), "protocol_error");
  EXPECT_EQ(pull(arena, unsealed, board), "protocol_error");
  EXPECT_EQ(pull(arena, table, unsealed), "protocol_error");
  EXPECT_EQ(pull(table, arena, board), "protocol_error");
  welcome_.arena_bytes = kArena + 1;
  EXPECT_EQ(pull(arena, table, board), "protocol_error");
  welcome_.arena_bytes = kArena;
  welcome_.table_entries = 1 << 20;
  EXPECT_EQ(pull(arena, table, board), "protocol_error");
  welcome_.table_entries = kEntries;
  EXPECT_EQ(Pull([&](int socket) {
              SendWithFds(socket, wire::EncodeLocalWelcome(welcome_), {arena.get(), table.get()});
            }),
            "protocol_error");
  welcome_.instance = {2};
  EXPECT_EQ(pull(arena, table, board), "wrong_instance");
  EXPECT_EQ(OpenFds(), fds);
  EXPECT_TRUE(Eventually([&] { return MemfdMappings() == 0; }));
}

TEST_F(HostileGatewayTest, AFullQueueIsTriedAgain) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path_.c_str());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  RawWorker ahead(path_);
  ASSERT_EQ(ReasonText(ConnectUnix(path_).status()), "busy");

  auto impatient = CreateLocalPullEngine({.connect_timeout = milliseconds(20)});
  auto op = impatient->Start({.descriptor = &descriptor_, .length = 100});
  EXPECT_EQ(ReasonText(DriveOp(*op).status()), "unreachable");

  auto patient = CreateLocalPullEngine({.connect_timeout = kTestLimit});
  op = patient->Start({.descriptor = &descriptor_, .length = 100});
  EXPECT_EQ(op->Step(), PullOp::Progress::kIdle);
  UniqueFd first(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::thread gateway([&] {
    UniqueFd second(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    SendWithFds(second.get(),
                wire::EncodeLocalWelcome({.status = static_cast<uint16_t>(Reason::kShutDown)}), {});
  });
  EXPECT_EQ(ReasonText(DriveOp(*op).status()), "shut_down");
  gateway.join();
}

}  // namespace
}  // namespace tensorferry::engine
