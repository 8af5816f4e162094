#include "tensorferry/policy/lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensorferry {
namespace {

TEST(Lane, NamesParseBack) {
  for (const Lane lane : kAllLanes) EXPECT_EQ(*ParseLane(LaneName(lane)), lane);
  for (const Mode mode : {Mode::kAuto, Mode::kInline, Mode::kShm, Mode::kRemote}) {
    EXPECT_EQ(*ParseMode(ModeName(mode)), mode);
  }
}

TEST(Lane, RdmaIsRemoteInAnyCaseAndTrimmed) {
  EXPECT_EQ(*ParseLane(" RDMA\n"), Lane::kRemote);
  EXPECT_EQ(*ParseMode("Rdma"), Mode::kRemote);
  EXPECT_EQ(*ParseMode(" Auto "), Mode::kAuto);
}

TEST(Lane, OtherWordsAreRefusedByName) {
  EXPECT_FALSE(ParseLane("auto").ok());
  EXPECT_FALSE(ParseLane("").ok());
  EXPECT_THAT(std::string(ParseMode("rdma2").status().message()), testing::HasSubstr("\"rdma2\""));
}

TEST(Lane, EveryTransportBelongsToALane) {
  EXPECT_EQ(LaneOfTransport("grpc"), Lane::kInline);
  EXPECT_EQ(LaneOfTransport("local"), Lane::kShm);
  EXPECT_EQ(LaneOfTransport("file"), Lane::kShm);
  EXPECT_EQ(LaneOfTransport("tcp"), Lane::kRemote);
  EXPECT_EQ(LaneOfTransport("ucx"), Lane::kRemote);
  EXPECT_EQ(LaneOfTransport("nixl"), Lane::kRemote);
  EXPECT_EQ(LaneOfTransport("tensorferry"), std::nullopt);
}

}  // namespace
}  // namespace tensorferry
