#include "tensorferry/worker/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensorferry/base/version.h"
#include "tensorferry/wire/descriptor.h"

namespace tensorferry {
namespace {

using testing::ElementsAre;

std::unique_ptr<Puller> MakePuller(PullerOptions options) {
  options.prefault = false;
  absl::StatusOr<std::unique_ptr<Puller>> puller = Puller::Create(std::move(options));
  EXPECT_TRUE(puller.ok()) << puller.status();
  return *std::move(puller);
}

TEST(DescribeWorker, ListsWhatThePullerHas) {
  const auto puller = MakePuller({.landing_bytes = 8 << 20});
  const Capabilities c = DescribeWorker(puller.get(), 64 << 20);
  EXPECT_THAT(c.lanes, ElementsAre(Lane::kInline, Lane::kShm, Lane::kRemote));
  EXPECT_THAT(c.transports, ElementsAre("grpc", "local", "tcp"));
  EXPECT_EQ(c.landing_bytes, uint64_t{8 << 20});
  EXPECT_EQ(c.max_inline_bytes, uint64_t{64 << 20});
  EXPECT_EQ(c.host, ThisHost());
  EXPECT_THAT(c.descriptor_versions, ElementsAre(wire::kDescriptorVersion));
  EXPECT_EQ(c.instance_id.size(), 16u);
  EXPECT_EQ(c.version, Version());
  EXPECT_FALSE(c.stock());
}

TEST(DescribeWorker, LeavesOutWhatIsOff) {
  const auto no_local = MakePuller({.landing_bytes = 1 << 20, .local = false});
  EXPECT_THAT(DescribeWorker(no_local.get(), 0).lanes, ElementsAre(Lane::kInline, Lane::kRemote));
  const auto no_tcp = MakePuller({.landing_bytes = 1 << 20, .tcp = false});
  EXPECT_THAT(DescribeWorker(no_tcp.get(), 0).transports, ElementsAre("grpc", "local"));
  const auto no_landing = MakePuller({.landing_bytes = 0});
  EXPECT_THAT(DescribeWorker(no_landing.get(), 0).lanes, ElementsAre(Lane::kInline, Lane::kShm));
  EXPECT_THAT(DescribeWorker(nullptr, 0).lanes, ElementsAre(Lane::kInline));
}

TEST(DescribeWorker, FilesAreOfLaneShm) {
  const auto both = MakePuller({.landing_bytes = 1 << 20, .file = engine::FilePullOptions{}});
  EXPECT_THAT(DescribeWorker(both.get(), 0).transports,
              ElementsAre("grpc", "local", "file", "tcp"));
  const auto files =
      MakePuller({.landing_bytes = 1 << 20, .local = false, .file = engine::FilePullOptions{}});
  EXPECT_THAT(DescribeWorker(files.get(), 0).lanes,
              ElementsAre(Lane::kInline, Lane::kShm, Lane::kRemote));
  const auto no_landing = MakePuller({.landing_bytes = 0, .file = engine::FilePullOptions{}});
  EXPECT_THAT(DescribeWorker(no_landing.get(), 0).transports, ElementsAre("grpc", "local"));
}

TEST(DescribeWorker, MakesUpAnInstanceEachTime) {
  EXPECT_NE(DescribeWorker(nullptr, 0).instance_id, DescribeWorker(nullptr, 0).instance_id);
}

}  // namespace
}  // namespace tensorferry
