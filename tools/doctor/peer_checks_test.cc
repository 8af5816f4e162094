#include "tools/doctor/peer_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensorferry/wire/descriptor.h"
#include "tools/doctor/finding_testing.h"

namespace tensorferry::tools {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

HostFacts Here() {
  HostFacts host;
  host.identity = {.boot_id = {1, 2, 3},
                   .uid = 1000,
                   .shm_namespace = "b:26",
                   .pid_namespace = 7,
                   .user_namespace = 8};
  return host;
}

// One with which nothing disagrees.
Capabilities Worker() {
  Capabilities worker;
  worker.lanes = {Lane::kInline, Lane::kShm, Lane::kRemote};
  worker.transports = {"grpc", "local", "file", "tcp"};
  worker.landing_bytes = 1024 * kMiB;
  worker.max_inline_bytes = 256 * kMiB;
  worker.host = Here().identity;
  worker.descriptor_versions = {wire::kDescriptorVersion};
  worker.instance_id = "w1";
  worker.version = "0.1.0";
  worker.hold = seconds(60);
  return worker;
}

Finding Examine(std::string_view name, const Capabilities& worker, const SettingPairs& config = {},
                const HostFacts& here = Here()) {
  for (const PeerCheck& check : PeerChecks()) {
    if (check.name == name) return check.examine(here, *ParseSettings({.config = config}), worker);
  }
  ADD_FAILURE() << "there is no check " << name;
  return {};
}

TEST(PeerChecks, NothingDisagreesWithAnEqual) {
  for (const PeerCheck& check : PeerChecks()) {
    const Finding finding = check.examine(Here(), *ParseSettings({}), Worker());
    EXPECT_EQ(finding.verdict, Verdict::kOk) << check.name << ": " << finding.cause;
    EXPECT_NE(finding.evidence, "") << check.name;
    EXPECT_FALSE(finding.ways.empty()) << check.name;
    for (const Way& way : finding.ways) EXPECT_EQ(way.direction, Direction::kSend) << check.name;
  }
}

TEST(PeerChecks, AStockWorkerSaysNothingThatDisagrees) {
  for (const PeerCheck& check : PeerChecks()) {
    const Finding finding = check.examine(
        Here(), *ParseSettings({.config = {{"mode", "remote"}, {"listen_ip", "10.0.0.5"}}}), {});
    EXPECT_EQ(finding.verdict, Verdict::kOk) << check.name << ": " << finding.cause;
    EXPECT_NE(finding.evidence, "") << check.name;
  }
}

TEST(PeerChecks, NoVersionInCommon) {
  Capabilities worker = Worker();
  worker.descriptor_versions = {wire::kDescriptorVersion + 1};
  ExpectFinding(Examine("versions", worker), Verdict::kOff, "version");
  EXPECT_THAT(Examine("versions", worker).evidence, HasSubstr("0.1.0"));
}

TEST(PeerChecks, AnotherHost) {
  Capabilities worker = Worker();
  worker.host.boot_id = {9};
  worker.host.shm_namespace = "c:26";
  worker.host.pid_namespace = worker.host.user_namespace = 1;
  ExpectFinding(Examine("host", worker), Verdict::kOff, "another host");
  ExpectFinding(Examine("shm_namespace", worker), Verdict::kOff, "/dev/shm");
  // Which cannot be the same there, and need not.
  EXPECT_EQ(Examine("pid_namespace", worker).verdict, Verdict::kOk);
  EXPECT_EQ(Examine("user_namespace", worker).verdict, Verdict::kOk);
}

TEST(PeerChecks, OtherNamespacesAndUsersOfThisHost) {
  Capabilities worker = Worker();
  worker.host.uid = 65534;
  worker.host.shm_namespace = "b:27";
  worker.host.pid_namespace = worker.host.user_namespace = 1;
  ExpectFinding(Examine("user", worker), Verdict::kOff, "different users");
  ExpectFinding(Examine("shm_namespace", worker), Verdict::kOff, "/dev/shm");
  ExpectFinding(Examine("user_namespace", worker), Verdict::kDegraded, "user namespaces");
}

TEST(PeerChecks, WorkersOfOtherPidNamespacesAreSeenFromLinux65On) {
  Capabilities worker = Worker();
  worker.host.pid_namespace = 1;
  HostFacts here = Here();
  const auto examine = [&] { return Examine("pid_namespace", worker, {}, here); };
  EXPECT_EQ(examine().verdict, Verdict::kOk);
  EXPECT_EQ(examine().evidence, "pid namespace 7 here, 1 at the worker");
  here.sees_any_pid_namespace = false;
  ExpectFinding(examine(), Verdict::kDegraded, "pid namespaces");
  worker.host.pid_namespace = 7;
  EXPECT_EQ(examine().verdict, Verdict::kOk);
}

TEST(PeerChecks, AnEngineThatTheWorkerCouldNotStart) {
  Capabilities worker = Worker();
  worker.unavailable = {{"nixl", "no library"}, {"of tomorrow", "?"}};
  const Finding finding = Examine("worker_engines", worker);
  ExpectFinding(finding, Verdict::kOff, "nixl: no library");
  EXPECT_THAT(finding.ways, testing::ElementsAre(Way{"nixl", Direction::kSend}));
}

TEST(PeerChecks, ALaneThatIsOnAtOneEndOnly) {
  Capabilities worker = Worker();
  worker.lanes = {Lane::kInline};
  const SettingPairs remote = {{"mode", "remote"}, {"listen_ip", "10.0.0.5"}};
  ExpectFinding(Examine("remote_switch", worker, remote), Verdict::kOff, "not at the worker");
  ExpectFinding(Examine("shm_switch", worker, {{"mode", "shm"}}), Verdict::kOff,
                "not at the worker");
  ExpectFinding(Examine("remote_switch", Worker(), {{"mode", "auto"}}), Verdict::kDegraded,
                "never sends");
  ExpectFinding(Examine("shm_switch", Worker(), remote), Verdict::kDegraded, "never sends");
  // Automatic takes what there is.
  EXPECT_EQ(Examine("shm_switch", worker, {{"mode", "auto"}}).verdict, Verdict::kOk);
  // From another host nobody misses it.
  Capabilities far = Worker();
  far.host.boot_id = {9};
  EXPECT_EQ(Examine("shm_switch", far, remote).verdict, Verdict::kOk);
}

TEST(PeerChecks, SlotsThatTheWorkerCannotTake) {
  Capabilities worker = Worker();
  worker.landing_bytes = worker.max_inline_bytes = 32 * kMiB - 1;
  ExpectFinding(Examine("worker_landing", worker), Verdict::kDegraded, "32 MiB");
  ExpectFinding(Examine("message_size", worker), Verdict::kDegraded, "32 MiB");
  EXPECT_EQ(Examine("worker_landing", worker, {{"slot_bytes", "1048576"}}).verdict, Verdict::kOk);
}

TEST(PeerChecks, LeasesThatEndUnderTheWorker) {
  Capabilities worker = Worker();
  worker.hold = seconds(210);
  ExpectFinding(Examine("ttl", worker), Verdict::kDegraded, "leases end");
  EXPECT_EQ(Examine("ttl", worker, {{"slot_ttl_s", "211"}}).verdict, Verdict::kOk);
}

}  // namespace
}  // namespace tensorferry::tools
