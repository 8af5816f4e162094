#include "tensorferry/engine/remote_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tensorferry/base/temp_dir_testing.h"

namespace tensorferry::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr RemoteEnd kBoth = {.tcp = true, .ucx = true, .rdma = true};
constexpr RemoteEnd kNoDevice = {.tcp = true, .ucx = true, .rdma = false};
constexpr RemoteEnd kTcp = {.tcp = true, .ucx = false, .rdma = false};
constexpr RemoteEnd kTcpWithDevice = {.tcp = true, .ucx = false, .rdma = true};
constexpr RemoteEnd kUcx = {.tcp = false, .ucx = true, .rdma = false};

void Expect(const RemoteEnd& gateway, const RemoteEnd& worker, std::string_view transport,
            const std::string& why) {
  const RemoteChoice choice = ChooseRemote(gateway, worker);
  EXPECT_EQ(choice.transport, transport) << why;
  EXPECT_EQ(choice.why, why);
}

TEST(RemoteChoiceTest, UcxWhereBothHaveADevice) {
  Expect(kBoth, kBoth, "ucx", "both ends have an active RDMA device");
  Expect(kBoth, kNoDevice, "tcp", "the worker has no active RDMA device");
  Expect(kNoDevice, kBoth, "tcp", "the gateway has no active RDMA device");
  Expect(kNoDevice, kNoDevice, "tcp", "neither end has an active RDMA device");
  Expect(kTcp, kTcp, "tcp", "neither end has an active RDMA device");
  Expect(kTcpWithDevice, kBoth, "tcp", "the gateway has no ucx, though both have RDMA devices");
  Expect(kBoth, kTcpWithDevice, "tcp", "the worker has no ucx, though both have RDMA devices");
  Expect(kTcpWithDevice, kTcpWithDevice, "tcp",
         "neither end has ucx, though both have RDMA devices");
}

TEST(RemoteChoiceTest, WhatThereIs) {
  Expect(kUcx, kNoDevice, "ucx", "the two ends have no other in common");
  Expect(kUcx, kTcp, "", "the two ends have neither tcp nor ucx in common");
  Expect({}, kBoth, "", "the two ends have neither tcp nor ucx in common");
}

TEST(RemoteChoiceTest, AnEndSaysItByTheOrderOfItsTransports) {
  const auto end = [](std::vector<std::string> names) { return RemoteEndOf(names); };
  EXPECT_TRUE(end({"local", "ucx", "tcp"}).rdma);
  EXPECT_FALSE(end({"local", "tcp", "ucx"}).rdma);
  EXPECT_TRUE(end({"tcp", "ucx"}).ucx);
  EXPECT_TRUE(end({"ucx"}).ucx);
  EXPECT_FALSE(end({"ucx"}).rdma);  // says nothing
  EXPECT_FALSE(end({"tcp", "nixl"}).ucx);
}

TEST(RemoteChoiceTest, DevicesWithAPortThatCarries) {
  const TempDir dir;
  const auto port = [&](const std::string& device, const std::string& number,
                        const std::string& state) {
    const std::string folder = dir.path() + "/" + device + "/ports/" + number;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/state") << state << "\n";
  };
  EXPECT_THAT(ActiveRdmaDevices(dir.path()), IsEmpty());
  EXPECT_THAT(ActiveRdmaDevices(dir.path() + "/missing"), IsEmpty());
  port("mlx5_1", "1", "4: ACTIVE");
  port("mlx5_0", "1", "1: DOWN");
  port("mlx5_0", "2", "4: ACTIVE");
  std::filesystem::create_directories(dir.path() + "/odd");
  EXPECT_THAT(ActiveRdmaDevices(dir.path()), ElementsAre("mlx5_0:2", "mlx5_1:1"));
}

}  // namespace
}  // namespace tensorferry::engine
