// NIXL, which brings a UCX of its own, in a process that has another UCX: a module that is linked to the system's.
// Each test wants a process of its own, which ctest gives it: what is loaded stays.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "tensorferry/engine/engine_testing.h"
#include "tensorferry/engine/nixl/nixl_agent.h"
#include "tensorferry/engine/nixl/nixl_testing.h"
#include "tensorferry/engine/ucx/ucx_testing.h"

namespace tensorferry::engine {
namespace {

// tests/peers/ucx_module.cc.
class UcxModule {
 public:
  static std::string Path() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
           "tensorferry_ucx_module.so";
  }

  void Open() {
    handle_ = ::dlopen(Path().c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle_, nullptr) << ::dlerror();
    EXPECT_STREQ(Call("start"), nullptr);
  }
  // The function's answer: what failed, or null.
  const char* Call(const char* name) const {
    auto* function = reinterpret_cast<const char* (*)()>(
        ::dlsym(handle_, (std::string("ucx_module_") + name).c_str()));
    return function == nullptr ? "no such function" : function();
  }
  void Close() const { EXPECT_STREQ(Call("stop"), nullptr); }

 private:
  void* handle_ = nullptr;
};

// Two agents, of which one READs from the other.
class NixlPair {
 public:
  void Open() {
    const auto library = NixlForTest();
    auto source = NixlAgent::Create(library, {.name = "source"});
    auto reader = NixlAgent::Create(library, {.name = "reader"});
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_TRUE(reader.ok()) << reader.status();
    source_ = *source;
    reader_ = *reader;
    ASSERT_TRUE(source_->Register(*there_, there_).ok());
    ASSERT_TRUE(reader_->Register(*here_, here_).ok());
    const auto metadata = source_->LocalMetadata();
    ASSERT_TRUE(metadata.ok()) << metadata.status();
    const auto peer = reader_->Load(*metadata);
    ASSERT_TRUE(peer.ok()) << peer.status();
    peer_ = *peer;
  }

  void Read(std::byte fill) {
    std::fill(there_->begin(), there_->end(), fill);
    auto read =
        reader_->Read(peer_, *here_, reinterpret_cast<uintptr_t>(there_->data()), "notified");
    ASSERT_TRUE(read.ok()) << read.status();
    const Instant until = RealClock().Now() + kTestLimit;
    while ((*read)->Poll() == NixlRead::State::kPending && RealClock().Now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ASSERT_EQ((*read)->Poll(), NixlRead::State::kDone);
    EXPECT_EQ(*here_, *there_);
  }

  void Close() {
    peer_.reset();
    reader_.reset();
    source_.reset();
  }

 private:
  using Memory = std::vector<std::byte>;
  const std::shared_ptr<Memory> there_ = std::make_shared<Memory>(1 << 20);
  const std::shared_ptr<Memory> here_ = std::make_shared<Memory>(1 << 20);
  std::shared_ptr<NixlAgent> source_, reader_;
  std::shared_ptr<NixlPeer> peer_;
};

class WithNixlBesideUcx : public testing::Test {
 protected:
  void SetUp() override {
    if (NixlDirForTest().empty()) GTEST_SKIP() << kNoNixl;
    if (!std::filesystem::exists(UcxModule::Path())) {
      GTEST_SKIP() << "no UCX when this was built: install libucx-dev and run cmake again";
    }
  }

  void ExpectBothWork(std::byte fill) {
    EXPECT_STREQ(ucx_.Call("exchange"), nullptr);
    nixl_.Read(fill);
    EXPECT_STREQ(ucx_.Call("exchange"), nullptr);
  }

  UcxModule ucx_;
  NixlPair nixl_;
};

TEST_F(WithNixlBesideUcx, UcxFirst) {
  ASSERT_NO_FATAL_FAILURE(ucx_.Open());
  EXPECT_STREQ(ucx_.Call("exchange"), nullptr);
  ASSERT_NO_FATAL_FAILURE(nixl_.Open());
  ExpectBothWork(std::byte{1});
  ucx_.Close();
  nixl_.Read(std::byte{2});
  nixl_.Close();
}

TEST_F(WithNixlBesideUcx, NixlFirst) {
  ASSERT_NO_FATAL_FAILURE(nixl_.Open());
  nixl_.Read(std::byte{1});
  ASSERT_NO_FATAL_FAILURE(ucx_.Open());
  ExpectBothWork(std::byte{2});
  nixl_.Close();
  EXPECT_STREQ(ucx_.Call("exchange"), nullptr);
  ucx_.Close();
}

// The same with our own engine on the system's UCX.
class WithNixlBesideOurUcx : public WithNixlBesideUcx {
 protected:
  void SetUp() override {
    if (NixlDirForTest().empty()) GTEST_SKIP() << kNoNixl;
    if (!std::filesystem::exists(UcxModulePathForTest())) GTEST_SKIP() << kNoUcx;
  }

  void OpenOurs() {
    const auto module = UcxForTest();
    gateway_ = std::make_unique<UcxGateway>(*module, FakeLeaseSource::Options{});
    auto puller = module->CreatePull({});
    ASSERT_TRUE(puller.ok()) << puller.status();
    puller_ = *std::move(puller);
  }

  void Pull() {
    const PublishedLease lease = gateway_->leases.Add(200000);
    UcxTransfer transfer(*puller_, gateway_->DescriptorOf(lease));
    const absl::Status status = DriveOp(*transfer.op).status();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(std::ranges::equal(transfer.into, gateway_->leases.BytesOf(lease)));
  }

  void CloseOurs() {
    puller_.reset();
    gateway_.reset();
  }

  std::unique_ptr<UcxGateway> gateway_;
  std::unique_ptr<PullEngine> puller_;
};

TEST_F(WithNixlBesideOurUcx, UcxFirst) {
  ASSERT_NO_FATAL_FAILURE(OpenOurs());
  Pull();
  ASSERT_NO_FATAL_FAILURE(nixl_.Open());
  nixl_.Read(std::byte{1});
  Pull();
  CloseOurs();
  nixl_.Read(std::byte{2});
  nixl_.Close();
}

TEST_F(WithNixlBesideOurUcx, NixlFirst) {
  ASSERT_NO_FATAL_FAILURE(nixl_.Open());
  nixl_.Read(std::byte{1});
  ASSERT_NO_FATAL_FAILURE(OpenOurs());
  Pull();
  nixl_.Read(std::byte{2});
  nixl_.Close();
  Pull();
  CloseOurs();
}

}  // namespace
}  // namespace tensorferry::engine
