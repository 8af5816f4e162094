// Pulls that fetch by themselves, over UCX's emulation: what proves the bytes, who is asked instead, and
// gateways that lie.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensorferry/base/error.h"
#include "tensorferry/engine/ucx/ucx_testing.h"
#include "tensorferry/wire/tcp_messages.h"
#include "tensorferry/wire/ucx_location.h"

namespace tensorferry::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class UcxGetTest : public UcxTest {
 protected:
  UcxGet get() const override { return UcxGet::kEvenEmulated; }
};

// Makes the memory another lease's right after a reader was told where it lies.
class HastySource final : public FakeLeaseSource {
 public:
  using FakeLeaseSource::FakeLeaseSource;
  absl::StatusOr<std::span<const std::byte>> Locate(const wire::LeaseRef& ref, uint64_t offset,
                                                    uint64_t length) override {
    const auto located = FakeLeaseSource::Locate(ref, offset, length);
    if (located.ok() && hasty) Reuse(*hasty);
    return located;
  }
  const PublishedLease* hasty = nullptr;
};

TEST_F(UcxGetTest, ALeaseThatEndsMeanwhileIsAnError) {
  HastySource leases({.arena_bytes = 4 << 20});
  const auto engine = *ucx_->CreateExport(Options());
  ASSERT_TRUE(engine->Start(leases.arena(), &leases).ok());
  for (const uint64_t size : {uint64_t{0}, uint64_t{1000}, uint64_t{1} << 20}) {
    const PublishedLease lease = leases.Add(size);
    const wire::Descriptor d = leases.DescriptorOf(lease, {engine->way()});
    std::vector<std::byte> into(size);
    EXPECT_TRUE(Pull(d, into).ok());
    EXPECT_TRUE(std::ranges::equal(into, leases.BytesOf(lease)));
    leases.hasty = &lease;
    const absl::Status ended = Pull(d, into);
    EXPECT_EQ(ReasonOf(ended), Reason::kLeaseEnded) << size << " " << ended;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("ended while"));
    leases.hasty = nullptr;
  }
  EXPECT_EQ(leases.locates(), 6u);
  EXPECT_EQ(leases.opens(), 0u);
}

TEST_F(UcxGetTest, AGatewayThatDoesNotOfferItIsAsked) {
  std::mutex mutex;
  std::vector<std::string> said;
  UsePuller({.ucx = {.log = [&](LogLevel level, std::string_view line) {
               const std::lock_guard<std::mutex> lock(mutex);
               if (level == LogLevel::kInfo) said.emplace_back(line);
             }}});
  UcxGateway gateway(*ucx_, {});
  ASSERT_FALSE(gateway.engine->one_sided());
  const PublishedLease lease = gateway.leases.Add(200000);
  ExpectArrives(gateway, lease);
  // One that was restarted without it, as it were.
  wire::Descriptor d = gateway.DescriptorOf(lease);
  std::get<wire::NetWay>(d.ways[0]).one_sided = true;
  std::vector<std::byte> into(lease.nbytes);
  const absl::Status status = Pull(d, into);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::ranges::equal(into, gateway.leases.BytesOf(lease)));
  EXPECT_EQ(gateway.leases.opens(), 2u);
  EXPECT_EQ(gateway.leases.locates(), 0u);
  puller_.reset();
  EXPECT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr("--ucx-get"));
}

TEST_F(UcxGetTest, AWorkerWithoutItAsks) {
  UcxGateway gateway(*ucx_, {}, Options());
  puller_ = *ucx_->CreatePull({});
  ExpectArrives(gateway, gateway.leases.Add(200000));
  EXPECT_EQ(gateway.leases.opens(), 1u);
  EXPECT_EQ(gateway.leases.locates(), 0u);
}

// A gateway that says what the test wants: tests/peers/ucx_module.cc.
class Liar {
 public:
  using Answer = std::function<std::vector<std::byte>(const wire::TcpRequest&, wire::TcpAnswer*)>;

  Liar() {
    const std::string path =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tensorferry_ucx_module.so";
    module_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto lie =
        reinterpret_cast<const char* (*)(size_t(*)(const void*, void*, void*, size_t), int*)>(
            ::dlsym(module_, "ucx_module_lie"));
    EXPECT_STREQ(lie(&Say, &port_), nullptr);
  }
  ~Liar() { reinterpret_cast<void (*)()>(::dlsym(module_, "ucx_module_lie_no_more"))(); }

  void Says(Answer answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_ = std::move(answer);
  }
  wire::Descriptor DescriptorOf(uint64_t nbytes) const {
    wire::Descriptor d;
    d.lease = {.id = 1, .generation = 7, .token = {}};
    d.nbytes = nbytes;
    auto address = *SocketAddress::Parse("127.0.0.1:1");
    address.set_port(static_cast<uint16_t>(port_));
    d.ways = {wire::NetWay{wire::NetWay::Kind::kUcx, {address}, true}};
    return d;
  }

 private:
  static size_t Say(const void* request, void* header, void* data, size_t room) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto asked = *wire::DecodeTcpRequest(std::span<const std::byte, wire::kTcpRequestBytes>(
        static_cast<const std::byte*>(request), wire::kTcpRequestBytes));
    wire::TcpAnswer answer = {.request = asked.request};
    const std::vector<std::byte> said = answer_(asked, &answer);
    const auto encoded = wire::EncodeTcpAnswer(answer);
    std::memcpy(header, encoded.data(), encoded.size());
    const size_t length = std::min(room, said.size());
    if (length > 0) std::memcpy(data, said.data(), length);
    return length;
  }

  static std::mutex mutex_;
  static Answer answer_;
  void* module_ = nullptr;
  int port_ = 0;
};
std::mutex Liar::mutex_;
Liar::Answer Liar::answer_;

// As UCX packs one: domains, the type of their memory, and for each the size of its part and the part.
std::vector<std::byte> Key(uint64_t domains, uint8_t memory, size_t more) {
  std::vector<std::byte> key(9 + more, std::byte{0xff});
  std::memcpy(key.data(), &domains, sizeof(domains));
  key[8] = std::byte{memory};
  return key;
}

TEST_F(UcxGetTest, AnswersThatMakeNoSenseAreErrorsAndNothingIsWritten) {
  constexpr uint64_t kSize = 1000;
  constexpr uint64_t kAddress = 1 << 20;
  const std::vector<std::byte> good_key = Key(0, 0, 0);
  const std::vector<wire::UcxLocation> wrong = {
      {.address = 0, .nbytes = kSize, .remote_key = good_key},
      {.address = ~uint64_t{0} - 500, .nbytes = kSize, .remote_key = good_key},
      {.address = kAddress, .nbytes = kSize - 1, .remote_key = good_key},
      {.address = kAddress, .nbytes = kSize + 1, .remote_key = good_key},
      {.address = kAddress, .nbytes = kSize, .remote_key = {}},
      {.address = kAddress, .nbytes = kSize, .remote_key = std::vector<std::byte>(5000)},
      {.address = kAddress, .nbytes = kSize, .remote_key = std::vector<std::byte>(8)},
      {.address = kAddress, .nbytes = kSize, .remote_key = Key(0, 200, 0)},
      {.address = kAddress, .nbytes = kSize, .remote_key = Key(1, 0, 0)},
      {.address = kAddress, .nbytes = kSize, .remote_key = Key(1, 0, 200)},
      {.address = kAddress, .nbytes = kSize, .remote_key = Key(~uint64_t{0}, 0, 900)}};
  std::vector<Liar::Answer> lies;
  for (const wire::UcxLocation& location : wrong) {
    lies.push_back([location](const wire::TcpRequest&, wire::TcpAnswer* answer) {
      const auto data = wire::EncodeUcxLocation(location);
      answer->length = data.size();
      return data;
    });
  }
  for (const size_t length : {0, 1, 15, 16, 1000, 1 << 20}) {
    lies.push_back([length](const wire::TcpRequest&, wire::TcpAnswer* answer) {
      answer->length = length;
      return std::vector<std::byte>(length, std::byte{0x77});
    });
  }
  lies.push_back([&](const wire::TcpRequest&, wire::TcpAnswer* answer) {
    answer->length = 17;
    return wire::EncodeUcxLocation({.address = kAddress, .nbytes = kSize, .remote_key = good_key});
  });
  Liar liar;
  for (size_t i = 0; i < lies.size(); ++i) {
    liar.Says(lies[i]);
    std::vector<std::byte> into(kSize, std::byte{0xee});
    const absl::Status status = Pull(liar.DescriptorOf(kSize), into);
    EXPECT_EQ(ReasonOf(status), Reason::kProtocol) << "lie " << i << ": " << status;
    EXPECT_TRUE(std::ranges::all_of(into, [](std::byte b) { return b == std::byte{0xee}; })) << i;
  }
  liar.Says([](const wire::TcpRequest&, wire::TcpAnswer* answer) {
    answer->status = 9999;
    return std::vector<std::byte>();
  });
  std::vector<std::byte> into(kSize);
  EXPECT_EQ(ReasonOf(Pull(liar.DescriptorOf(kSize), into)), Reason::kProtocol);
  UcxGateway gateway(*ucx_, {}, Options());
  ExpectArrives(gateway, gateway.leases.Add(kSize));
}

// The liar answers no GET: it did not tell UCX that it would.
TEST_F(UcxGetTest, AGetThatIsNotAnsweredEndsAtItsDeadline) {
  Liar liar;
  liar.Says([](const wire::TcpRequest&, wire::TcpAnswer* answer) {
    const auto data =
        wire::EncodeUcxLocation({.address = 1 << 20, .nbytes = 1000, .remote_key = Key(0, 0, 0)});
    answer->length = data.size();
    return data;
  });
  const Instant soon = SaturatingAdd(RealClock().Now(), milliseconds(300));
  UcxTransfer first(*puller_, liar.DescriptorOf(1000), soon);
  UcxTransfer sibling(*puller_, liar.DescriptorOf(1000), SaturatingAdd(soon, milliseconds(300)));
  UcxTransfer abandoned(*puller_, liar.DescriptorOf(1000));
  const absl::Status status = DriveOp(*first.op).status();
  EXPECT_EQ(ReasonOf(status), Reason::kTimedOut) << status;
  // It was asked for again, on another endpoint.
  EXPECT_EQ(ReasonOf(DriveOp(*sibling.op).status()), Reason::kTimedOut);
  abandoned.op.reset();
  for (const UcxTransfer* transfer : {&first, &sibling, &abandoned}) {
    EXPECT_TRUE(std::ranges::all_of(transfer->into, [](std::byte b) { return b == std::byte{0}; }));
  }
  UcxGateway gateway(*ucx_, {}, Options());
  ExpectArrives(gateway, gateway.leases.Add(1000));
}

}  // namespace
}  // namespace tensorferry::engine
