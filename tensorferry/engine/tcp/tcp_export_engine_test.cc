// The gateway's side against readers that misbehave, byte by byte.
#include "tensorferry/engine/tcp/tcp_export_engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tensorferry/engine/tcp/tcp_testing.h"

namespace tensorferry::engine {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kHuge = 100 << 20;  // more than any socket buffer takes

class TcpExportEngineTest : public ::testing::Test {
 protected:
  // Start() must come first.
  void Start(TcpExportOptions options = {}) {
    if (options.listen == SocketAddress()) options.listen = AnyLoopbackPort();
    options.log = [this](LogLevel, std::string_view line) {
      std::lock_guard lock(log_mutex_);
      log_.emplace_back(line);
    };
    auto engine = TcpExportEngine::Create(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_->Start(leases_.arena(), &leases_).ok());
  }

  RawConnection Connect() { return RawConnection::To(engine_->address()); }

  wire::TcpRequest Read(const PublishedLease& lease, uint64_t number = 1) const {
    return {.kind = wire::TcpRequest::Kind::kRead,
            .request = number,
            .instance = leases_.arena().instance,
            .lease = lease.ref,
            .offset = 0,
            .length = lease.nbytes};
  }

  bool Serves(RawConnection& reader, const PublishedLease& lease) {
    if (!reader.Send(wire::EncodeTcpRequest(Read(lease, 77)))) return false;
    const auto answer = reader.ReadAnswer();
    if (!answer.has_value() || answer->status != 0 || answer->request != 77) return false;
    return std::ranges::equal(reader.Read(lease.nbytes), leases_.BytesOf(lease));
  }

  // The reader has asked for a huge lease and the engine is stuck with it.
  void BlockOn(RawConnection& reader, const PublishedLease& lease, uint32_t deadline_ms = 0) {
    wire::TcpRequest request = Read(lease);
    request.deadline_ms = deadline_ms;
    ASSERT_TRUE(reader.Send(wire::EncodeTcpRequest(request)));
    ASSERT_TRUE(reader.ReadAnswer().has_value());
  }

  bool Unpinned() {
    return leases_.WaitUntil([this] { return leases_.pins() == 0; });
  }

  std::vector<std::string> log() {
    std::lock_guard lock(log_mutex_);
    return log_;
  }
  bool Logged(std::string_view what) {
    return leases_.WaitUntil([&] {
      const auto lines = log();
      return std::ranges::any_of(
          lines, [&](const std::string& line) { return line.find(what) != std::string::npos; });
    });
  }

  FakeLeaseSource leases_{{.arena_bytes = kHuge + (uint64_t{2} << 20)}};
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<TcpExportEngine> engine_;
};

TEST_F(TcpExportEngineTest, ServesRanges) {
  Start();
  const PublishedLease lease = leases_.Add(10000);
  RawConnection reader = Connect();
  EXPECT_TRUE(Serves(reader, lease));
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 0}, {0, 1}, {9999, 1}, {10000, 0}, {4097, 100}}) {
    wire::TcpRequest request = Read(lease, offset);
    request.offset = offset;
    request.length = length;
    reader.Send(wire::EncodeTcpRequest(request));
    EXPECT_EQ(reader.ReadAnswer(), (wire::TcpAnswer{0, offset, length}));
    EXPECT_TRUE(
        std::ranges::equal(reader.Read(length), leases_.BytesOf(lease).subspan(offset, length)));
  }
  EXPECT_TRUE(Unpinned());
}

TEST_F(TcpExportEngineTest, RefusesWithAReasonAndGoesOn) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  const PublishedLease ended = leases_.Add(100);
  leases_.End(ended.ref);
  RawConnection reader = Connect();
  const auto refusal = [&](const wire::TcpRequest& request) {
    reader.Send(wire::EncodeTcpRequest(request));
    const auto answer = reader.ReadAnswer();
    EXPECT_TRUE(answer.has_value());
    EXPECT_EQ(answer->length, 0u);
    EXPECT_EQ(answer->request, request.request);
    return ReasonFromNumber(answer->status);
  };

  EXPECT_EQ(refusal(Read(ended)), Reason::kLeaseEnded);
  wire::TcpRequest request = Read(lease, 2);
  request.lease.generation += 1;
  EXPECT_EQ(refusal(request), Reason::kLeaseEnded);
  request = Read(lease, 3);
  request.lease.id = ~uint64_t{0};
  EXPECT_EQ(refusal(request), Reason::kLeaseEnded);
  request = Read(lease, 4);
  request.lease.token[15] ^= 1;
  EXPECT_EQ(refusal(request), Reason::kBadToken);
  request = Read(lease, 5);
  request.instance[0] ^= 1;
  EXPECT_EQ(refusal(request), Reason::kWrongInstance);
  for (const auto& [offset, length] :
       std::vector<std::pair<uint64_t, uint64_t>>{{0, 101},
                                                  {101, 0},
                                                  {1, 100},
                                                  {0, uint64_t{1} << 63},
                                                  {uint64_t{1} << 63, uint64_t{1} << 63},
                                                  {~uint64_t{0}, 2},
                                                  {50, ~uint64_t{0}}}) {
    request = Read(lease, 6);
    request.offset = offset;
    request.length = length;
    EXPECT_EQ(refusal(request), Reason::kOutOfRange) << offset << " " << length;
  }
  EXPECT_EQ(leases_.opens(), 0u);
  EXPECT_TRUE(Serves(reader, lease));
}

TEST_F(TcpExportEngineTest, ADoneReachesTheSourceOnlyFromOurInstance) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  RawConnection reader = Connect();
  wire::TcpRequest done = Read(lease);
  done.kind = wire::TcpRequest::Kind::kDone;
  done.instance[3] ^= 1;
  reader.Send(wire::EncodeTcpRequest(done));
  done = Read(lease);
  done.kind = wire::TcpRequest::Kind::kDone;
  reader.Send(wire::EncodeTcpRequest(done));
  EXPECT_TRUE(leases_.WaitUntil([&] { return !leases_.done().empty(); }));
  EXPECT_TRUE(Serves(reader, lease));
  EXPECT_THAT(leases_.done(), ElementsAre(lease.ref));
}

TEST_F(TcpExportEngineTest, GarbageClosesTheConnectionAndIsLoggedSparsely) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  RawConnection bystander = Connect();
  for (int i = 0; i < 9; ++i) {
    RawConnection stranger = Connect();
    stranger.Send("GET / HTTP/1.1\r\nHost: gateway\r\n" + std::string(100, 'x'));
    EXPECT_TRUE(stranger.ReadsEnd());
  }
  EXPECT_TRUE(Serves(bystander, lease));
  EXPECT_THAT(log(), SizeIs(4));  // 1, 2, 4, 8
  EXPECT_THAT(log().back(), HasSubstr("8 such so far"));
}

TEST_F(TcpExportEngineTest, AnUnknownKindOrVersionClosesTheConnection) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  for (const auto& [at, value] : std::vector<std::pair<size_t, char>>{{3, '2'}, {4, 9}, {92, 1}}) {
    auto bytes = wire::EncodeTcpRequest(Read(lease));
    bytes[at] = static_cast<std::byte>(value);
    RawConnection reader = Connect();
    reader.Send(bytes);
    EXPECT_TRUE(reader.ReadsEnd()) << at;
  }
  EXPECT_EQ(leases_.opens(), 0u);
}

TEST_F(TcpExportEngineTest, ARequestThatComesByteByByteIsServed) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  RawConnection reader = Connect();
  RawConnection other = Connect();
  for (const std::byte b : wire::EncodeTcpRequest(Read(lease))) {
    reader.Send({&b, 1});
    EXPECT_TRUE(Serves(other, lease));  // nobody waits for it
  }
  EXPECT_EQ(reader.ReadAnswer()->length, 100u);
}

TEST_F(TcpExportEngineTest, AnIncompleteRequestIsNoRequest) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  {
    RawConnection reader = Connect();
    const auto bytes = wire::EncodeTcpRequest(Read(lease));
    reader.Send(std::span(bytes).first(95));
  }
  EXPECT_TRUE(Logged("95 of the 96 bytes"));
  EXPECT_EQ(leases_.opens(), 0u);
}

TEST_F(TcpExportEngineTest, RequestsSentAheadAreAnsweredInOrder) {
  Start();
  const PublishedLease lease = leases_.Add(1000);
  RawConnection reader = Connect();
  std::vector<std::byte> requests;
  constexpr uint64_t kCount = 500;
  for (uint64_t i = 0; i < kCount; ++i) {
    wire::TcpRequest request = Read(lease, i);
    request.offset = i;
    request.length = 500;
    if (i % 10 == 9) request.lease.generation = 1;
    const auto bytes = wire::EncodeTcpRequest(request);
    requests.insert(requests.end(), bytes.begin(), bytes.end());
  }
  std::thread sender([&] { EXPECT_TRUE(reader.Send(requests)); });
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto answer = reader.ReadAnswer();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->request, i);
    if (i % 10 == 9) {
      EXPECT_EQ(ReasonFromNumber(answer->status), Reason::kLeaseEnded);
    } else {
      EXPECT_TRUE(std::ranges::equal(reader.Read(500), leases_.BytesOf(lease).subspan(i, 500)));
    }
  }
  sender.join();
}

TEST_F(TcpExportEngineTest, WhatIsReadAheadIsBounded) {
  Start();
  const PublishedLease huge = leases_.Add(kHuge);
  RawConnection reader = Connect();
  BlockOn(reader, huge);
  // Requests pile up in the sockets' buffers, and no further.
  const std::vector<std::byte> flood(1 << 20);
  size_t taken = 0;
  while (const size_t n = reader.SendSome(flood)) {
    taken += n;
    ASSERT_LT(taken, kHuge);
  }
  EXPECT_EQ(leases_.pins(), 1);
}

TEST_F(TcpExportEngineTest, SmallAnswersAreNotStarvedByALargeOne) {
  Start();
  const PublishedLease huge = leases_.Add(kHuge);
  const PublishedLease small = leases_.Add(1000);
  RawConnection large_reader = Connect();
  RawConnection small_reader = Connect();
  ASSERT_TRUE(Serves(small_reader, small));
  std::atomic<bool> large_done = false;
  std::thread drain([&] {
    large_reader.Send(wire::EncodeTcpRequest(Read(huge)));
    EXPECT_EQ(large_reader.Read(wire::kTcpAnswerBytes + kHuge).size(),
              wire::kTcpAnswerBytes + kHuge);
    large_done = true;
  });
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.opens() >= 2; }));
  int served_meanwhile = 0;
  while (!large_done) {
    ASSERT_TRUE(Serves(small_reader, small));
    if (!large_done) ++served_meanwhile;
  }
  drain.join();
  EXPECT_GT(served_meanwhile, 1);
}

TEST_F(TcpExportEngineTest, AReaderThatStopsIsCutOffAndItsLeaseUnpinned) {
  Start({.stall_timeout = milliseconds(30)});
  const PublishedLease huge = leases_.Add(kHuge);
  RawConnection reader = Connect();
  BlockOn(reader, huge);
  EXPECT_TRUE(Unpinned());
  EXPECT_TRUE(Logged("took too long"));
  EXPECT_THAT(log().back(), AllOf(HasSubstr("lease 0"), HasSubstr(StrCat("of ", kHuge))));
  EXPECT_LT(reader.Read(kHuge).size(), kHuge);
}

TEST_F(TcpExportEngineTest, AReaderIsCutOffAtItsOwnDeadline) {
  Start({.stall_timeout = hours(1)});
  const PublishedLease huge = leases_.Add(kHuge);
  RawConnection patient = Connect();
  BlockOn(patient, huge);
  RawConnection reader = Connect();
  BlockOn(reader, huge, /*deadline_ms=*/30);
  EXPECT_TRUE(leases_.WaitUntil([&] { return leases_.pins() == 1; }));
  EXPECT_LT(reader.Read(kHuge).size(), kHuge);
  EXPECT_EQ(patient.Read(kHuge).size(), kHuge);
}

TEST_F(TcpExportEngineTest, AReaderThatLeavesIsForgottenAtOnce) {
  Start({.stall_timeout = hours(1)});
  const PublishedLease huge = leases_.Add(kHuge);
  RawConnection reader = Connect();
  BlockOn(reader, huge);
  EXPECT_EQ(leases_.pins(), 1);
  reader.Close();
  EXPECT_TRUE(Unpinned());
}

TEST_F(TcpExportEngineTest, AReaderMayEndItsOwnHalfFirst) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  RawConnection reader = Connect();
  reader.Send(wire::EncodeTcpRequest(Read(lease)));
  ::shutdown(reader.fd(), SHUT_WR);
  EXPECT_EQ(reader.ReadAnswer()->length, 100u);
  EXPECT_EQ(reader.Read(1000).size(), 100u);  // and then the end
}

TEST_F(TcpExportEngineTest, TheEndUnpinsWhatIsUnderWay) {
  Start();
  const PublishedLease huge = leases_.Add(kHuge);
  RawConnection reader = Connect();
  BlockOn(reader, huge);
  engine_.reset();
  EXPECT_EQ(leases_.pins(), 0);
  EXPECT_TRUE(reader.ReadsEnd());
}

TEST_F(TcpExportEngineTest, FurtherConnectionsAreAnsweredBusy) {
  Start({.max_connections = 1});
  const PublishedLease huge = leases_.Add(kHuge);
  RawConnection first = Connect();
  BlockOn(first, huge);
  RawConnection second = Connect();
  second.Send(wire::EncodeTcpRequest(Read(huge)));
  const auto answer = second.ReadAnswer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(ReasonFromNumber(answer->status), Reason::kBusy);
  EXPECT_TRUE(second.ReadsEnd());
  EXPECT_EQ(leases_.opens(), 1u);
  EXPECT_EQ(first.Read(kHuge).size(), kHuge);
}

TEST_F(TcpExportEngineTest, AFloodOfConnectionsBeyondTheLimitPassesOver) {
  Start({.max_connections = 1});
  const PublishedLease huge = leases_.Add(kHuge);
  const PublishedLease small = leases_.Add(100);
  RawConnection first = Connect();
  BlockOn(first, huge);
  std::vector<RawConnection> flood;
  for (int i = 0; i < 65; ++i) flood.push_back(Connect());
  EXPECT_TRUE(flood.front().ReadsEnd());  // one too many to be heard
  flood.back().Send(wire::EncodeTcpRequest(Read(small)));
  EXPECT_EQ(ReasonFromNumber(flood.back().ReadAnswer()->status), Reason::kBusy);

  EXPECT_EQ(first.Read(kHuge).size(), kHuge);
  EXPECT_TRUE(Serves(first, small));
  RawConnection later = Connect();
  EXPECT_TRUE(Serves(later, small));
}

TEST_F(TcpExportEngineTest, AnIdleConnectionMakesRoomForANewOne) {
  Start({.max_connections = 2});
  const PublishedLease lease = leases_.Add(100);
  RawConnection oldest = Connect();
  ASSERT_TRUE(Serves(oldest, lease));
  RawConnection newer = Connect();
  ASSERT_TRUE(Serves(newer, lease));
  RawConnection newest = Connect();
  EXPECT_TRUE(Serves(newest, lease));
  EXPECT_TRUE(oldest.ReadsEnd());
  EXPECT_TRUE(Serves(newer, lease));
}

TEST_F(TcpExportEngineTest, WithoutDescriptorsLeftAConnectionEndsAtOnce) {
  Start();
  const PublishedLease lease = leases_.Add(100);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  std::vector<UniqueFd> fill;
  for (;;) {
    UniqueFd fd(::fcntl(0, F_DUPFD_CLOEXEC, 0));
    if (!fd) break;
    fill.push_back(std::move(fd));
  }
  fill.pop_back();
  RawConnection reader = Connect();  // takes the last one
  EXPECT_TRUE(reader.ReadsEnd());
  fill.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(Logged("ulimit -n"));
  RawConnection later = Connect();
  EXPECT_TRUE(Serves(later, lease));
}

TEST_F(TcpExportEngineTest, APortThatIsTakenIsNamed) {
  Start();
  const auto second = TcpExportEngine::Create({.listen = engine_->address()});
  EXPECT_EQ(ReasonOf(second.status()), Reason::kAddressInUse);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(engine_->address().ToString()));
}

TEST_F(TcpExportEngineTest, ARestartTakesThePortBack) {
  Start();
  const SocketAddress address = engine_->address();
  const PublishedLease lease = leases_.Add(100);
  RawConnection lingering = Connect();
  ASSERT_TRUE(Serves(lingering, lease));
  engine_.reset();
  EXPECT_TRUE(lingering.ReadsEnd());
  Start({.listen = address});
  EXPECT_EQ(engine_->address(), address);
  RawConnection reader = Connect();
  EXPECT_TRUE(Serves(reader, lease));
}

TEST_F(TcpExportEngineTest, AddressesThatNobodyCanDialAreRefused) {
  for (const char* listen : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    const auto engine = TcpExportEngine::Create({.listen = *SocketAddress::Parse(listen)});
    EXPECT_EQ(ReasonOf(engine.status()), Reason::kBadAddress) << listen;
    EXPECT_THAT(std::string(engine.status().message()), HasSubstr(listen));
  }
  const auto engine = TcpExportEngine::Create(
      {.listen = AnyLoopbackPort(), .advertise = {*SocketAddress::Parse("0.0.0.0:1")}});
  EXPECT_EQ(ReasonOf(engine.status()), Reason::kBadAddress);
  const auto many =
      TcpExportEngine::Create({.listen = AnyLoopbackPort(),
                               .advertise = std::vector(9, *SocketAddress::Parse("10.0.0.1:1"))});
  EXPECT_EQ(ReasonOf(many.status()), Reason::kBadAddress);
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("at most 8"));
}

TEST_F(TcpExportEngineTest, AdvertisesTheBoundPortOnTheNamedAddresses) {
  const auto engine = TcpExportEngine::Create(
      {.listen = *SocketAddress::Parse("0.0.0.0:0"),
       .advertise = {*SocketAddress::Parse("10.0.0.5:0"), *SocketAddress::Parse("10.0.0.6:99")}});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto way = std::get<wire::NetWay>((*engine)->way());
  EXPECT_EQ(way.kind, wire::NetWay::Kind::kTcp);
  SocketAddress bound = *SocketAddress::Parse("10.0.0.5:0");
  bound.set_port((*engine)->address().port());
  EXPECT_THAT(way.addresses, ElementsAre(bound, *SocketAddress::Parse("10.0.0.6:99")));
}

TEST_F(TcpExportEngineTest, AWildcardOfIPv6ServesBothFamilies) {
  Start({.listen = *SocketAddress::Parse("[::]:0"),
         .advertise = {*SocketAddress::Parse("127.0.0.1:0"), *SocketAddress::Parse("[::1]:0")}});
  const PublishedLease lease = leases_.Add(100);
  const auto way = std::get<wire::NetWay>(engine_->way());
  for (const SocketAddress& address : way.addresses) {
    RawConnection reader = RawConnection::To(address);
    EXPECT_TRUE(Serves(reader, lease)) << address.ToString();
  }
}

TEST_F(TcpExportEngineTest, AnEngineThatWasNeverStartedGoesQuietly) {
  ASSERT_TRUE(TcpExportEngine::Create({.listen = AnyLoopbackPort()}).ok());
}

}  // namespace
}  // namespace tensorferry::engine
