#include "tools/doctor/host_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/doctor/finding_testing.h"

namespace tensorferry::tools {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// One on which nothing stands in the way.
HostFacts Healthy() {
  HostFacts host;
  host.dev_shm_bytes = host.dev_shm_free_bytes = 1024 * kMiB;
  host.memory_bytes = 8192 * kMiB;
  host.memory_limit = "the machine's memory";
  host.open_files = 1024;
  host.max_map_count = 65530;
  host.rdma = {{.name = "mlx5_0:1",
                .detail = "4: ACTIVE",
                .active = true,
                .verbs = "/dev/infiniband/uverbs0",
                .accessible = true}};
  host.ucx_choice = "rc_mlx5/mlx5_0:1";
  return host;
}

Settings With(const SettingPairs& config) { return *ParseSettings({.config = config}); }

Finding Examine(std::string_view name, const HostFacts& host, const SettingPairs& config = {}) {
  for (const HostCheck& check : HostChecks()) {
    if (check.name == name) return check.examine(host, With(config));
  }
  ADD_FAILURE() << "there is no check " << name;
  return {};
}

TEST(HostChecks, NothingStandsInTheWayOfAHealthyHost) {
  for (const HostCheck& check : HostChecks()) {
    const Finding finding = check.examine(Healthy(), With({}));
    EXPECT_EQ(finding.verdict, Verdict::kOk) << check.name << ": " << finding.cause;
    EXPECT_NE(finding.evidence, "") << check.name;
    EXPECT_EQ(finding.cause + finding.fix, "") << check.name;
    EXPECT_FALSE(finding.ways.empty()) << check.name;
  }
}

TEST(HostChecks, NothingIsSaidOfWhatIsNotKnown) {
  HostFacts host = Healthy();
  host.max_map_count = host.ptrace_scope = host.memlock_bytes = host.open_files = std::nullopt;
  host.ucx_choice = "";
  for (const HostCheck& check : HostChecks()) {
    EXPECT_EQ(check.examine(host, With({})).verdict, Verdict::kOk) << check.name;
  }
}

TEST(HostChecks, AFullDevShmHoldsNoLargeTensor) {
  HostFacts host = Healthy();
  host.dev_shm_free_bytes = 32 * kMiB - 1;
  ExpectFinding(Examine("dev_shm", host), Verdict::kDegraded, "32 MiB");
  host.dev_shm_free_bytes = 32 * kMiB;
  EXPECT_EQ(Examine("dev_shm", host).verdict, Verdict::kOk);
}

TEST(HostChecks, ADevShmThatCannotBeWrittenTo) {
  HostFacts host = Healthy();
  host.dev_shm = SystemError(EACCES, "/dev/shm");
  ExpectFinding(Examine("dev_shm", host), Verdict::kOff, "/dev/shm");
}

TEST(HostChecks, MemoryWithoutANameIsForbidden) {
  HostFacts host = Healthy();
  host.memfd = SystemError(EPERM, "memfd_create");
  ExpectFinding(Examine("memfd", host), Verdict::kOff, "memfd_create");
}

TEST(HostChecks, MoreMemoryThanThereIs) {
  HostFacts host = Healthy();
  host.memory_bytes = 1024 * kMiB;
  host.memory_limit = "/sys/fs/cgroup/memory.max";
  for (const char* check : {"arena_memory", "landing_memory"}) {
    // The default is nobody's wish.
    ExpectFinding(Examine(check, host), Verdict::kDegraded, "/sys/fs/cgroup/memory.max");
  }
  ExpectFinding(Examine("arena_memory", host, {{"arena_bytes", "1073741825"}}), Verdict::kOff,
                "1 GiB");
  ExpectFinding(Examine("landing_memory", host, {{"landing_slots", "40"}}), Verdict::kOff,
                "1.2 GiB");
  EXPECT_EQ(Examine("arena_memory", host, {{"arena_bytes", "1073741824"}}).verdict, Verdict::kOk);
}

TEST(HostChecks, FewOpenFilesAndFewMappings) {
  HostFacts host = Healthy();
  host.open_files = 255;
  host.max_map_count = 16383;
  ExpectFinding(Examine("open_files", host), Verdict::kDegraded, "255");
  ExpectFinding(Examine("map_count", host), Verdict::kDegraded, "16383");
}

TEST(HostChecks, RemoteWithoutAnAddressIsNotServed) {
  ExpectFinding(Examine("listen_ip", Healthy(), {{"pixel_rdma", "on"}}), Verdict::kDegraded,
                "listen_ip");
  EXPECT_EQ(
      Examine("listen_ip", Healthy(), {{"pixel_rdma", "on"}, {"listen_ip", "10.0.0.5"}}).verdict,
      Verdict::kOk);
}

TEST(HostChecks, OnlyDevicesLockMemory) {
  HostFacts host = Healthy();
  host.memlock_bytes = 8 * kMiB;
  ExpectFinding(Examine("memlock", host), Verdict::kDegraded, "8 MiB");
  host.rdma.front().active = false;
  EXPECT_EQ(Examine("memlock", host).verdict, Verdict::kOk);
}

TEST(HostChecks, YamaKeepsUcxFromCopying) {
  HostFacts host = Healthy();
  host.ptrace_scope = 1;  // which UCX lifts for itself
  EXPECT_EQ(Examine("ptrace_scope", host).verdict, Verdict::kOk);
  host.ptrace_scope = 2;
  ExpectFinding(Examine("ptrace_scope", host), Verdict::kDegraded, "cma");
}

TEST(HostChecks, DevicesThatAreNotThereDownOrClosed) {
  HostFacts host = Healthy();
  host.rdma.front().accessible = false;
  ExpectFinding(Examine("rdma_device", host), Verdict::kDegraded, "/dev/infiniband/uverbs0");
  host.rdma.front().active = false;
  ExpectFinding(Examine("rdma_device", host), Verdict::kDegraded, "active");
  host.rdma.clear();
  ExpectFinding(Examine("rdma_device", host), Verdict::kDegraded, "no RDMA device");
}

TEST(HostChecks, UcxPassesByADeviceThatIsThere) {
  HostFacts host = Healthy();
  host.ucx_choice = "tcp/eth0";
  ExpectFinding(Examine("ucx_device", host), Verdict::kDegraded, "mlx5_0:1");
  host.rdma.clear();
  EXPECT_EQ(Examine("ucx_device", host).verdict, Verdict::kOk);
}

TEST(HostChecks, WithoutUcxInfoTheFirstActiveDeviceIsNamed) {
  HostFacts host = Healthy();
  host.ucx_choice = "";
  EXPECT_THAT(Examine("ucx_device", host).evidence, HasSubstr("mlx5_0:1"));
  host.rdma.clear();
  EXPECT_THAT(Examine("ucx_device", host).evidence, HasSubstr("no RDMA device"));
}

}  // namespace
}  // namespace tensorferry::tools
