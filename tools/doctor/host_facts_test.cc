#include "tools/doctor/host_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tensorferry/base/temp_dir_testing.h"

namespace tensorferry::tools {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// A machine made of files.
class HostFactsTest : public testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  HostFacts Read() const { return ReadHostFacts({.root = root_.path()}); }

  TempDir root_;
};

TEST_F(HostFactsTest, AnEmptyMachineLimitsNothing) {
  const HostFacts facts = Read();
  EXPECT_EQ(facts.max_map_count, std::nullopt);
  EXPECT_EQ(facts.ptrace_scope, std::nullopt);
  EXPECT_THAT(facts.rdma, IsEmpty());
  EXPECT_TRUE(facts.own_uids);
  EXPECT_FALSE(facts.dev_shm.ok());
  EXPECT_THAT(std::string(facts.dev_shm.message()), testing::HasSubstr("/dev/shm"));
}

TEST_F(HostFactsTest, ReadsWhatTheKernelIsSetTo) {
  Put("/proc/sys/vm/max_map_count", "1024");
  Put("/proc/sys/kernel/yama/ptrace_scope", "3");
  Put("/proc/self/uid_map", "         0       1000          1");
  std::filesystem::create_directories(root_.path() + "/dev/shm");
  const HostFacts facts = Read();
  EXPECT_EQ(facts.max_map_count, 1024u);
  EXPECT_EQ(facts.ptrace_scope, 3u);
  EXPECT_FALSE(facts.own_uids);
  EXPECT_TRUE(facts.dev_shm.ok()) << facts.dev_shm;
  EXPECT_GT(facts.dev_shm_bytes, 0u);
}

TEST_F(HostFactsTest, TheWholeRangeOfUsersIsTheSystemsNamespace) {
  Put("/proc/self/uid_map", "         0          0 4294967295");
  EXPECT_TRUE(Read().own_uids);
}

TEST_F(HostFactsTest, ReadsEveryPortOfEveryDevice) {
  for (const char* device : {"mlx5_0", "mlx5_1"}) {
    const std::string port = std::string("/sys/class/infiniband/") + device + "/ports/1/";
    Put(port + "state", device == std::string("mlx5_0") ? "4: ACTIVE" : "1: DOWN");
    Put(port + "link_layer", "InfiniBand");
    Put(port + "rate", "200 Gb/sec (4X HDR)");
  }
  Put("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
  Put("/dev/infiniband/uverbs0", "");
  const HostFacts facts = Read();
  ASSERT_THAT(facts.rdma, SizeIs(2));
  EXPECT_EQ(facts.rdma[0].name, "mlx5_0:1");
  EXPECT_EQ(facts.rdma[0].detail, "4: ACTIVE, InfiniBand, 200 Gb/sec (4X HDR)");
  EXPECT_TRUE(facts.rdma[0].active);
  EXPECT_EQ(facts.rdma[0].verbs, "/dev/infiniband/uverbs0");
  EXPECT_TRUE(facts.rdma[0].accessible);
  EXPECT_EQ(facts.rdma[1].name, "mlx5_1:1");
  EXPECT_FALSE(facts.rdma[1].active);
  EXPECT_FALSE(facts.rdma[1].accessible);
}

TEST(ReadHostFacts, ThisMachineIsRead) {
  const HostFacts facts = ReadHostFacts({});
  EXPECT_EQ(facts.identity, ThisHost());
  EXPECT_TRUE(facts.memfd.ok()) << facts.memfd;
  EXPECT_GT(facts.memory_bytes, 0u);
  EXPECT_NE(facts.memory_limit, "");
  EXPECT_NE(facts.max_map_count, std::nullopt);
}

TEST(ParseUcxLane, TakesTheFirstLane) {
  // What ucx_info 1.13 prints.
  EXPECT_EQ(ParseUcxLane("#\n# UCP endpoint \n#\n#               peer: <no debug data>\n"
                         "#                 lane[0]:  0:tcp/lo.0 md[0]                -> "
                         "md[0]/tcp/sysdev[255] am am_bw#0 wireup\n#\n"),
            "tcp/lo");
  EXPECT_EQ(ParseUcxLane("#   lane[0]:  5:rc_mlx5/mlx5_0:1.0 md[4]  -> md[4]/ib/sysdev[0]\n"
                         "#   lane[1]:  0:tcp/eth0.0 md[0]  -> md[0]/tcp/sysdev[255]\n"),
            "rc_mlx5/mlx5_0:1");
  // Two ends that have met by rdmacm.
  EXPECT_EQ(ParseUcxLane("#   lane[0]:  cm rdmacm\n#   lane[1]:  2:ud_mlx5/mlx5_1:1.0 md[1]\n"),
            "ud_mlx5/mlx5_1:1");
  // Two VLANs have a point in their name.
  EXPECT_EQ(ParseUcxLane("#   lane[0]:  1:tcp/eth0.100.0 md[0]\n"), "tcp/eth0.100");
}

TEST(ParseUcxLane, NothingIsUnderstoodOfAnythingElse) {
  for (const char* text :
       {"", "ucx_info: not found", "lane[0]:", "lane[0]: tcp", "lane: 0:tcp/lo.0"}) {
    EXPECT_EQ(ParseUcxLane(text), "") << text;
  }
}

}  // namespace
}  // namespace tensorferry::tools
