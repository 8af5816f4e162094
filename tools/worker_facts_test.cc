#include "tools/worker_facts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/error.h"
#include "tools/setting_flags.h"

namespace tensorferry::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseWorkerInfo, EveryKeyArrives) {
  const WorkerInfo info = *ParseWorkerInfo(R"({
      "lanes": ["inline", "rdma"], "transports": ["grpc", "nixl"],
      "landing_bytes": 18446744073709551615, "max_inline_bytes": 4194304,
      "descriptor_versions": [1, 2], "instance_id": "w7", "version": "0.1.0",
      "host": {"boot_id": "01234567-89ab-cdef-0123-456789abcdef", "uid": 1000,
               "shm_namespace": "b:26"},
      "multimodal_tensor_transport": "auto", "multimodal_shm_min_bytes": 5})");
  const Capabilities& worker = info.capabilities;
  EXPECT_THAT(worker.lanes, ElementsAre(Lane::kInline, Lane::kRemote));
  EXPECT_THAT(worker.transports, ElementsAre("grpc", "nixl"));
  EXPECT_EQ(worker.landing_bytes, UINT64_MAX);
  EXPECT_EQ(worker.max_inline_bytes, 4194304u);
  EXPECT_THAT(worker.descriptor_versions, ElementsAre(1, 2));
  EXPECT_EQ(worker.instance_id, "w7");
  EXPECT_EQ(worker.version, "0.1.0");
  EXPECT_EQ(BootIdText(worker.host.boot_id), "01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(worker.host.uid, 1000u);
  EXPECT_EQ(worker.host.shm_namespace, "b:26");
  EXPECT_EQ(info.overrides.multimodal_tensor_transport, "auto");
  EXPECT_EQ(info.overrides.multimodal_shm_min_bytes, "5");
}

TEST(ParseWorkerInfo, WhatIsLeftOutIsThatOfAWorkerThatSaysNothing) {
  EXPECT_EQ(ParseWorkerInfo("{}")->capabilities, Capabilities());
  EXPECT_TRUE(ParseWorkerInfo(R"({"lanes": ["remote"]})")->capabilities.stock());
  EXPECT_FALSE(ParseWorkerInfo(R"({"descriptor_versions": [1]})")->capabilities.stock());
  EXPECT_THAT(ParseWorkerInfo(R"({"lanes": []})")->capabilities.lanes, testing::IsEmpty());
}

TEST(ParseWorkerInfo, WhatIsWrongIsNamed) {
  const auto message = [](std::string_view json) {
    const auto info = ParseWorkerInfo(json);
    EXPECT_EQ(ReasonOf(info.status()), Reason::kBadOption) << json;
    return std::string(info.status().message());
  };
  EXPECT_THAT(message("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(message("{"), HasSubstr("no JSON object"));
  EXPECT_THAT(message(R"({"lane": "shm"})"), HasSubstr("no key lane"));
  EXPECT_THAT(message(R"({"host": {"user": 1}})"), HasSubstr("no key host.user"));
  EXPECT_THAT(message(R"({"lanes": "shm"})"), HasSubstr("lanes is \"shm\""));
  EXPECT_THAT(message(R"({"lanes": ["fast"]})"), HasSubstr("inline, shm and remote"));
  EXPECT_THAT(message(R"({"transports": ["pigeon"]})"), HasSubstr("pigeon"));
  EXPECT_THAT(message(R"({"landing_bytes": -1})"), HasSubstr("landing_bytes is -1"));
  EXPECT_THAT(message(R"({"landing_bytes": 1.5})"), HasSubstr("landing_bytes"));
  EXPECT_THAT(message(R"({"host": {"uid": 4294967296}})"), HasSubstr("host.uid"));
  EXPECT_THAT(message(R"({"host": {"boot_id": "here"}})"), HasSubstr("host.boot_id"));
  EXPECT_THAT(message(R"({"host": 7})"), HasSubstr("host"));
  EXPECT_THAT(message(R"({"descriptor_versions": [4294967296]})"), HasSubstr("numbers"));
  EXPECT_THAT(message(R"({"multimodal_shm_min_bytes": true})"), HasSubstr("whole number"));
}

TEST(Resolve, NamesTheFlagOfWhatIsNoAddress) {
  EXPECT_EQ(Resolve("127.0.0.1:7", "--worker")->ToString(), "127.0.0.1:7");
  EXPECT_EQ(Resolve("[::1]:7", "--worker")->ToString(), "[::1]:7");
  for (const std::string text : {"", "127.0.0.1", ":7", "127.0.0.1:"}) {
    const auto address = Resolve(text, "--worker");
    EXPECT_EQ(ReasonOf(address.status()), Reason::kBadAddress) << text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr("--worker")) << text;
  }
}

TEST(ParseConfig, TakesTextsNumbersAndSwitches) {
  EXPECT_THAT(*ParseConfig(R"({"mode": "auto", "pool_slots": 7, "pixel_rdma": true})"),
              ElementsAre(std::pair("mode", "auto"), std::pair("pool_slots", "7"),
                          std::pair("pixel_rdma", "true")));
  for (const std::string_view json : {"", "7", "[]", "{", R"({"mode": null})", R"({"mode": []})"}) {
    EXPECT_EQ(ReasonOf(ParseConfig(json).status()), Reason::kBadOption) << json;
  }
}

}  // namespace
}  // namespace tensorferry::tools
