#include "tensorferry/policy/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Variables = std::map<std::string, std::string, std::less<>>;

// A process's environment, and which of it was looked up.
struct Environment {
  Variables variables = {};
  std::set<std::string, std::less<>> asked = {};

  EnvironmentLookup lookup() {
    return [this](std::string_view name) -> std::optional<std::string> {
      asked.emplace(name);
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    };
  }
};

absl::StatusOr<Settings> FromVariables(Variables variables) {
  Environment environment{.variables = std::move(variables)};
  return ParseSettings({.environment = environment.lookup()});
}

std::string Origin(const Settings& settings, std::string_view name) {
  return settings.OriginOf(name).ToString();
}

TEST(Settings, DefaultsAreThoseOfTheReference) {
  const Settings s = *ParseSettings({});
  EXPECT_EQ(s.mode, Mode::kInline);
  EXPECT_FALSE(s.remote_lane);
  EXPECT_EQ(s.shm_min_bytes, 65536u);
  EXPECT_EQ(s.listen_ip, "");
  EXPECT_EQ(s.listen(), "");
  EXPECT_EQ(s.listen_port, 18515u);
  EXPECT_EQ(s.pool_slots, 64u);
  EXPECT_EQ(s.slot_bytes, 33554432u);
  EXPECT_EQ(s.landing_slots, 64u);
  EXPECT_EQ(s.arena_bytes, uint64_t{2} << 30);
  EXPECT_EQ(s.landing_bytes, uint64_t{2} << 30);
  EXPECT_EQ(s.landing_wait_s, 120u);
  EXPECT_EQ(s.read_timeout_s, 60u);
  EXPECT_EQ(s.hold(), std::chrono::seconds(180));
  EXPECT_EQ(s.slot_ttl(), std::chrono::seconds(210));
  EXPECT_EQ(s.image_dtype, std::nullopt);
  EXPECT_EQ(s.send_metadata, SendMetadata::kAuto);
  EXPECT_TRUE(s.unlink_after_read);
  EXPECT_TRUE(s.epd_ingest_offloop);
  EXPECT_TRUE(s.epd_pixel_shm);
  EXPECT_EQ(s.max_message_bytes, uint64_t{256} << 20);
  EXPECT_FALSE(s.log_mm_timing);
  EXPECT_THAT(s.warnings, IsEmpty());
  for (const SettingSpec& spec : SettingTable()) {
    EXPECT_EQ(Origin(s, spec.name), spec.derivation.empty() ? "default" : "derived") << spec.name;
  }
}

// A text for each setting that is not its default, and how it prints.
const std::map<std::string_view, std::pair<std::string, std::string>> kOther = {
    {"mode", {" Auto ", "auto"}},
    {"pixel_rdma", {"yes", "on"}},
    {"allow_fallback", {"0", "off"}},
    {"assume_pull", {"1", "on"}},
    {"shm_min_bytes", {"0", "0"}},
    {"remote_min_bytes", {"0", "0"}},
    {"listen_ip", {" 10.0.0.5 ", "10.0.0.5"}},
    {"listen_port", {"65535", "65535"}},
    {"slot_bytes", {"1", "1"}},
    {"pool_slots", {"1", "1"}},
    {"arena_bytes", {"1", "1"}},
    {"landing_slots", {"1", "1"}},
    {"landing_bytes", {"1", "1"}},
    {"landing_wait_s", {"0", "0"}},
    {"read_timeout_s", {"1", "1"}},
    {"slot_ttl_s", {"181", "181"}},
    {"image_dtype", {"half", "float16"}},
    {"video_dtype", {"bf16", "bfloat16"}},
    {"audio_dtype", {"f32", "float32"}},
    {"tokenspeed_dtype", {"fp16", "float16"}},
    {"vllm_dtype", {"fp32", "float32"}},
    {"send_metadata", {"false", "off"}},
    {"unlink_after_read", {"NO", "off"}},
    {"epd_ingest_offloop", {"off", "off"}},
    {"epd_pixel_shm", {"0", "off"}},
    {"max_message_bytes", {"2147483647", "2147483647"}},
    {"log_mm_timing", {"true", "on"}},
};

TEST(Settings, EveryOneIsSetByItsVariableItsFlagsAndTheConfiguration) {
  size_t settable = 0;
  for (const SettingSpec& spec : SettingTable()) {
    if (spec.flags[0].empty() && spec.variable.empty()) continue;
    ++settable;
    ASSERT_TRUE(kOther.contains(spec.name)) << spec.name;
    const auto& [text, printed] = kOther.at(spec.name);
    const auto expect = [&, &shown = printed](const absl::StatusOr<Settings>& s,
                                              const std::string& origin) {
      ASSERT_TRUE(s.ok()) << s.status();
      EXPECT_EQ(SettingText(*s, spec), shown) << spec.name;
      EXPECT_EQ(Origin(*s, spec.name), origin);
    };
    expect(ParseSettings({.config = {{std::string(spec.name), text}}}), "config");
    for (const std::string_view flag : spec.flags) {
      if (!flag.empty()) expect(ParseSettings({.flags = {{std::string(flag), text}}}), "flag");
    }
    for (const std::string_view variable : {spec.variable, spec.deprecated}) {
      if (variable.empty()) continue;
      expect(FromVariables({{std::string(variable), text}}), StrCat("environment ", variable));
    }
  }
  EXPECT_EQ(settable, kOther.size());
}

TEST(Settings, TableNamesNothingTwice) {
  std::set<std::string_view> seen;
  for (const SettingSpec& spec : SettingTable()) {
    EXPECT_TRUE(seen.insert(spec.name).second) << spec.name;
    EXPECT_EQ(FindSetting(spec.name), &spec);
    for (const std::string_view word :
         {spec.flags[0], spec.flags[1], spec.variable, spec.deprecated}) {
      if (!word.empty()) {
        EXPECT_TRUE(seen.insert(word).second) << word;
      }
    }
  }
  EXPECT_EQ(FindSetting("no_such"), nullptr);
}

TEST(Settings, FlagsBeforeConfigurationBeforeEnvironmentBeforeDefault) {
  Environment environment{.variables = {{"SMG_RDMA_POOL_SLOTS", "3"}}};
  SettingSources sources{.config = {{"pool_slots", "2"}},
                         .flags = {{"rdma-pool-slots", "1"}},
                         .environment = environment.lookup()};
  EXPECT_EQ(ParseSettings(sources)->pool_slots, 1u);
  sources.flags.clear();
  EXPECT_EQ(ParseSettings(sources)->pool_slots, 2u);
  EXPECT_FALSE(environment.asked.contains("SMG_RDMA_POOL_SLOTS"));
  sources.config.clear();
  EXPECT_EQ(ParseSettings(sources)->pool_slots, 3u);
}

TEST(Settings, ABlankVariableIsNotThere) {
  for (const std::string blank : {"", " ", "\t\n"}) {
    for (const SettingSpec& spec : SettingTable()) {
      if (spec.variable.empty()) continue;
      const auto s = FromVariables({{std::string(spec.variable), blank}});
      ASSERT_TRUE(s.ok()) << s.status();
      EXPECT_NE(s->OriginOf(spec.name).kind, SettingOrigin::Kind::kEnvironment);
    }
  }
}

TEST(Settings, ADeprecatedVariableIsReadOnlyWithoutTheNewOneAndWarnedOfOnceNamingBoth) {
  for (const auto& [now, before] :
       {std::pair{"SMG_MM_TENSOR_TRANSPORT", "SMG_TOKENSPEED_MM_TENSOR_TRANSPORT"},
        {"SMG_MM_SHM_MIN_BYTES", "SMG_TOKENSPEED_MM_SHM_MIN_BYTES"}}) {
    const std::string text = std::string(now).ends_with("BYTES") ? "7" : "shm";
    const Settings old = *FromVariables({{now, " "}, {before, text}});
    EXPECT_THAT(old.warnings, ElementsAre(AllOf(HasSubstr(now), HasSubstr(before))));
    Environment both{.variables = {{now, text}, {before, "nonsense"}}};
    EXPECT_THAT(ParseSettings({.environment = both.lookup()})->warnings, IsEmpty());
    EXPECT_FALSE(both.asked.contains(before));
    EXPECT_THAT(std::string(FromVariables({{before, "non\nsense"}}).status().message()),
                AllOf(HasSubstr(before), HasSubstr("non\\nsense")));
  }
}

struct Wrong {
  const char* variable;
  const char* value;
  const char* why;
};

TEST(Settings, WhatIsWrongIsRefusedByVariableValueAndForm) {
  const Wrong all[] = {
      {"SMG_MM_TENSOR_TRANSPORT", "fast", "inline, shm, auto, remote or rdma"},
      {"SMG_MM_SHM_MIN_BYTES", "64k", "a whole number"},
      {"SMG_MM_SHM_MIN_BYTES", "-1", "a whole number"},
      {"SMG_MM_SHM_MIN_BYTES", "18446744073709551616", "is over 18446744073709551615"},
      {"SMG_MM_PIXEL_RDMA", "enabled", "1/true/yes/on or 0/false/no/off"},
      {"SMG_RDMA_LISTEN_IP", "gateway", "a numeric IP address"},
      {"SMG_RDMA_LISTEN_IP", "0.0.0.0", "no address that a worker can dial"},
      {"SMG_RDMA_LISTEN_PORT", "0", "a whole number, 1 to 65535"},
      {"SMG_RDMA_LISTEN_PORT", "65536", "is over 65535"},
      {"SMG_RDMA_LISTEN_PORT", "http", "a whole number, 1 to 65535"},
      {"SMG_RDMA_POOL_SLOTS", "0", "a whole number, from 1"},
      {"SMG_RDMA_SLOT_BYTES", "0", "a whole number, from 1"},
      {"SMG_RDMA_SLOT_BYTES", "33_554_432", "a whole number, from 1"},
      {"SMG_RDMA_LANDING_SLOTS", "0", "a whole number, from 1"},
      {"SMG_RDMA_LANDING_WAIT_S", "120.5", "a whole number"},
      {"SMG_RDMA_READ_TIMEOUT_S", "0", "a whole number, from 1"},
      {"SMG_RDMA_SLOT_TTL_S", "soon", "a whole number"},
      {"SMG_RDMA_SEND_MD", "sometimes", "auto, 1/true/yes/on or 0/false/no/off"},
      {"SMG_TOKENSPEED_IMAGE_ENCODER_INPUT_DTYPE", "uint8", "bfloat16/bf16"},
      {"SMG_VLLM_ENCODER_INPUT_DTYPE", "float64", "float16/fp16/f16/half"},
      {"TOKENSPEED_UNLINK_MM_SHM_AFTER_READ", "never", "1/true/yes/on or 0/false/no/off"},
      {"TOKENSPEED_GRPC_MAX_MESSAGE_BYTES", "2147483648", "1024 to 2147483647"},
      {"EPD_INGEST_OFFLOOP", "2", "1/true/yes/on or 0/false/no/off"},
  };
  for (const Wrong& wrong : all) {
    const auto s = FromVariables({{wrong.variable, wrong.value}});
    ASSERT_FALSE(s.ok()) << wrong.variable << "=" << wrong.value;
    EXPECT_EQ(ReasonOf(s.status()), Reason::kBadOption);
    EXPECT_THAT(
        std::string(s.status().message()),
        AllOf(HasSubstr(StrCat(wrong.variable, "=\"", wrong.value, "\"")), HasSubstr(wrong.why)));
  }
}

TEST(Settings, FlagsAndConfigurationAreRefusedByTheirNames) {
  const auto message = [](const SettingSources& sources) {
    const auto s = ParseSettings(sources);
    EXPECT_EQ(ReasonOf(s.status()), Reason::kBadOption);
    return std::string(s.status().message());
  };
  EXPECT_THAT(message({.flags = {{"multimodal-tensor-transport", "fast"}}}),
              HasSubstr("--multimodal-tensor-transport=\"fast\""));
  EXPECT_THAT(message({.config = {{"pool_slots", "0"}}}), HasSubstr("configuration: pool_slots"));
  EXPECT_THAT(message({.flags = {{"no-such-flag", "1"}}}),
              AllOf(HasSubstr("--no-such-flag"), HasSubstr("no such setting")));
  EXPECT_THAT(message({.config = {{"SMG_RDMA_POOL_SLOTS", "1"}}}), HasSubstr("no such setting"));
  EXPECT_THAT(message({.config = {{"hold_s", "1"}}}), HasSubstr("derived"));
  EXPECT_THAT(message({.flags = {{"lane", "shm"}, {"multimodal-tensor-transport", "shm"}}}),
              AllOf(HasSubstr("--lane"), HasSubstr("--multimodal-tensor-transport")));
  // Also when it does not count.
  EXPECT_THAT(message({.config = {{"pool_slots", "none"}}, .flags = {{"rdma-pool-slots", "1"}}}),
              HasSubstr("configuration: pool_slots=\"none\""));
}

TEST(Settings, AValueOfAnyLengthIsShownShort) {
  const auto s = FromVariables({{"SMG_RDMA_POOL_SLOTS", std::string(100000, 'x')}});
  EXPECT_LT(s.status().message().size(), 300u);
}

TEST(Settings, EitherSpellingTurnsTheLaneOnAtBothEnds) {
  for (const SettingEnd end : {SettingEnd::kGateway, SettingEnd::kWorker, SettingEnd::kBoth}) {
    for (const auto& [variable, text] : {std::pair{"SMG_MM_TENSOR_TRANSPORT", "rdma"},
                                         {"SMG_MM_TENSOR_TRANSPORT", " Remote"},
                                         {"SMG_TOKENSPEED_MM_TENSOR_TRANSPORT", "RDMA"},
                                         {"SMG_MM_PIXEL_RDMA", "1"},
                                         {"SMG_MM_PIXEL_RDMA", " YES "},
                                         {"SMG_MM_PIXEL_RDMA", "on"}}) {
      Environment environment{.variables = {{variable, text}}};
      EXPECT_TRUE(ParseSettings({.environment = environment.lookup(), .end = end})->remote_lane)
          << variable << text;
    }
    for (const std::string flag : {"rdma", "remote"}) {
      EXPECT_TRUE(ParseSettings({.flags = {{"multimodal-tensor-transport", flag}}, .end = end})
                      ->remote_lane);
    }
    EXPECT_TRUE(ParseSettings({.flags = {{"mm-pixel-rdma", "true"}}, .end = end})->remote_lane);
  }
  EXPECT_FALSE(FromVariables({{"SMG_MM_PIXEL_RDMA", "0"}})->remote_lane);
  EXPECT_FALSE(FromVariables({{"SMG_MM_TENSOR_TRANSPORT", "auto"}})->remote_lane);
}

TEST(Settings, AFlagThatIsOffLeavesTheSwitchToTheVariable) {
  Environment environment{.variables = {{"SMG_MM_PIXEL_RDMA", "1"}}};
  const SettingSources sources{.flags = {{"mm-pixel-rdma", "false"}},
                               .environment = environment.lookup()};
  EXPECT_TRUE(ParseSettings(sources)->pixel_rdma);
  EXPECT_FALSE(ParseSettings({.flags = sources.flags})->pixel_rdma);
}

TEST(Settings, TheLaneWithoutAnAddressIsWarnedOfAtTheGateway) {
  Environment environment{.variables = {{"SMG_MM_PIXEL_RDMA", "1"}}};
  SettingSources sources{.environment = environment.lookup()};
  EXPECT_THAT(ParseSettings(sources)->warnings, ElementsAre(HasSubstr("SMG_RDMA_LISTEN_IP")));
  sources.finds_address = true;
  EXPECT_THAT(ParseSettings(sources)->warnings, IsEmpty());
  sources.finds_address = false;
  sources.end = SettingEnd::kWorker;
  EXPECT_THAT(ParseSettings(sources)->warnings, IsEmpty());
  environment.variables["SMG_RDMA_LISTEN_IP"] = "fd00::7";
  sources.end = SettingEnd::kGateway;
  EXPECT_THAT(ParseSettings(sources)->warnings, IsEmpty());
  EXPECT_EQ(ParseSettings(sources)->listen(), "[fd00::7]:18515");
}

TEST(Settings, WhatIsForTheOtherEndIsNotLookedUp) {
  for (const SettingEnd end : {SettingEnd::kGateway, SettingEnd::kWorker}) {
    Environment environment;
    ASSERT_TRUE(ParseSettings({.environment = environment.lookup(), .end = end}).ok());
    for (const SettingSpec& spec : SettingTable()) {
      if (spec.variable.empty()) continue;
      EXPECT_EQ(environment.asked.contains(spec.variable),
                spec.end == SettingEnd::kBoth || spec.end == end)
          << spec.name;
    }
  }
}

TEST(Settings, SlotsAreReducedToEightGibibytes) {
  const auto with = [](const std::string& slots, const std::string& bytes) {
    return *FromVariables({{"SMG_RDMA_POOL_SLOTS", slots},
                           {"SMG_RDMA_LANDING_SLOTS", slots},
                           {"SMG_RDMA_SLOT_BYTES", bytes}});
  };
  Settings s = with("256", "33554432");
  EXPECT_EQ(s.arena_bytes, kMaxArenaBytes);
  EXPECT_THAT(s.warnings, IsEmpty());
  s = with("257", "33554432");
  EXPECT_EQ(s.pool_slots, 256u);
  EXPECT_EQ(s.landing_slots, 256u);
  EXPECT_EQ(s.arena_bytes, kMaxArenaBytes);
  EXPECT_EQ(s.landing_bytes, kMaxArenaBytes);
  EXPECT_THAT(s.warnings, ElementsAre(AllOf(HasSubstr("pool_slots=257"), HasSubstr("to 256")),
                                      HasSubstr("landing_slots=257")));
  // One slot remains, however large it is.
  s = with("18446744073709551615", "18446744073709551615");
  EXPECT_EQ(s.slot_bytes, kMaxArenaBytes);
  EXPECT_EQ(s.pool_slots, 1u);
  EXPECT_EQ(s.arena_bytes, kMaxArenaBytes);
  EXPECT_THAT(s.warnings, testing::SizeIs(3));
  s = with("3", "3000000000");
  EXPECT_EQ(s.pool_slots, 2u);
  EXPECT_EQ(s.arena_bytes, 6000000000u);
}

TEST(Settings, SizesGivenOutrightAreTaken) {
  const Settings s = *ParseSettings(
      {.flags = {{"arena-bytes", "17179869184"}}, .environment = [](std::string_view name) {
         return name == "SMG_RDMA_POOL_SLOTS" ? std::optional<std::string>("2") : std::nullopt;
       }});
  EXPECT_EQ(s.arena_bytes, uint64_t{16} << 30);
  EXPECT_EQ(Origin(s, "arena_bytes"), "flag");
  EXPECT_EQ(Origin(s, "landing_bytes"), "derived");
}

TEST(Settings, ATtlCountsOnlyAboveTheHold) {
  const auto with = [](const std::string& wait, const std::string& read, const std::string& ttl) {
    return *FromVariables({{"SMG_RDMA_LANDING_WAIT_S", wait},
                           {"SMG_RDMA_READ_TIMEOUT_S", read},
                           {"SMG_RDMA_SLOT_TTL_S", ttl}});
  };
  Settings s = with("10", "5", "16");
  EXPECT_EQ(s.slot_ttl_s, 16u);
  EXPECT_EQ(Origin(s, "slot_ttl_s"), "environment SMG_RDMA_SLOT_TTL_S");
  EXPECT_THAT(s.warnings, IsEmpty());
  for (const std::string ttl : {"15", "1", "0"}) {
    s = with("10", "5", ttl);
    EXPECT_EQ(s.slot_ttl_s, 45u);
    EXPECT_EQ(Origin(s, "slot_ttl_s"), "derived");
    EXPECT_THAT(s.warnings, ElementsAre(AllOf(HasSubstr(StrCat("slot_ttl_s=", ttl, " ")),
                                              HasSubstr("15 s"), HasSubstr("45"))));
  }
}

RC_GTEST_PROP(Settings, WhatIsDerivedNeverOverflows, ()) {
  const auto number =
      rc::gen::oneOf(rc::gen::arbitrary<uint64_t>(), rc::gen::inRange<uint64_t>(1, 1000),
                     rc::gen::inRange<uint64_t>(UINT64_MAX - 50, UINT64_MAX));
  const auto text = [&] { return std::to_string(std::max<uint64_t>(1, *number)); };
  const Settings s = *FromVariables({{"SMG_RDMA_LANDING_WAIT_S", text()},
                                     {"SMG_RDMA_READ_TIMEOUT_S", text()},
                                     {"SMG_RDMA_SLOT_TTL_S", text()},
                                     {"SMG_RDMA_POOL_SLOTS", text()},
                                     {"SMG_RDMA_LANDING_SLOTS", text()},
                                     {"SMG_RDMA_SLOT_BYTES", text()}});
  RC_ASSERT(s.hold_s >= s.landing_wait_s);
  RC_ASSERT(s.hold_s >= s.read_timeout_s);
  RC_ASSERT(s.slot_ttl_s > s.hold_s || s.slot_ttl_s == UINT64_MAX);
  RC_ASSERT(s.hold() >= Duration::zero());
  RC_ASSERT(s.slot_ttl() >= s.hold());
  RC_ASSERT(s.arena_bytes >= s.slot_bytes);
  RC_ASSERT(s.arena_bytes <= kMaxArenaBytes);
  RC_ASSERT(s.arena_bytes == s.pool_slots * s.slot_bytes);
  RC_ASSERT(s.landing_bytes >= s.slot_bytes);
  RC_ASSERT(s.landing_bytes <= kMaxArenaBytes);
}

TEST(ForWorker, WhatAWorkerSaysGoesBeforeAll) {
  const Settings router = *ParseSettings(
      {.flags = {{"multimodal-tensor-transport", "shm"}, {"multimodal-shm-min-bytes", "9"}}});
  const Settings s =
      *ForWorker(router, {.multimodal_tensor_transport = " AUTO", .multimodal_shm_min_bytes = "5"});
  EXPECT_EQ(s.mode, Mode::kAuto);
  EXPECT_EQ(s.shm_min_bytes, 5u);
  EXPECT_EQ(Origin(s, "mode"), "worker");
  EXPECT_EQ(Origin(s, "shm_min_bytes"), "worker");
  const Settings same = *ForWorker(router, {});
  EXPECT_EQ(same.mode, Mode::kShm);
  EXPECT_EQ(Origin(same, "mode"), "flag");
}

TEST(ForWorker, WrongValuesAreRefusedByTheirField) {
  const Settings router = *ParseSettings({});
  EXPECT_THAT(std::string(ForWorker(router, {.multimodal_tensor_transport = "fast",
                                             .multimodal_shm_min_bytes = {}})
                              .status()
                              .message()),
              HasSubstr("worker: multimodal_tensor_transport=\"fast\""));
  EXPECT_FALSE(
      ForWorker(router, {.multimodal_tensor_transport = {}, .multimodal_shm_min_bytes = "64k"})
          .ok());
}

// SMG's switch is the process's: there a worker that says inline or shm gets remote handles all the
// same, and one that says rdma does not.
TEST(ForWorker, AWorkersWordSwitchesLaneRemoteForItAlone) {
  for (const bool on : {false, true}) {
    Settings router = *ParseSettings({.flags = {{"mm-pixel-rdma", on ? "true" : "false"}}});
    const auto remote = [&](const std::string& mode) {
      return PolicyOf(*ForWorker(router, {.multimodal_tensor_transport = mode,
                                          .multimodal_shm_min_bytes = {}}))
          .allow_remote;
    };
    EXPECT_FALSE(remote("inline"));
    EXPECT_FALSE(remote("shm"));
    EXPECT_EQ(remote("auto"), on);
    EXPECT_TRUE(remote("rdma"));
  }
}

TEST(PolicyOf, TheSwitchBesideModeInlineIsModeRemote) {
  const LanePolicy on = PolicyOf(*FromVariables({{"SMG_MM_PIXEL_RDMA", "1"}}));
  EXPECT_EQ(on.mode, Mode::kRemote);
  EXPECT_TRUE(on.allow_fallback);
  const LanePolicy off = PolicyOf(*ParseSettings({}));
  EXPECT_EQ(off.mode, Mode::kInline);
  EXPECT_FALSE(off.allow_fallback);
  EXPECT_FALSE(off.allow_remote);
}

std::string Cell(std::string_view text) {
  return text.empty() ? std::string() : StrCat("`", text, "`");
}

// The rows of docs/settings.md, of this table.
std::string TableText() {
  const Settings defaults = *ParseSettings({});
  std::string out =
      "| name | end | flag | variable | takes | default | |\n|---|---|---|---|---|---|---|\n";
  for (const SettingSpec& spec : SettingTable()) {
    std::string flags;
    for (const std::string_view flag : spec.flags) {
      if (!flag.empty()) StrAppend(&flags, flags.empty() ? "" : ", ", "`--", flag, "`");
    }
    std::string variables = Cell(spec.variable);
    if (!spec.deprecated.empty()) StrAppend(&variables, " (before: `", spec.deprecated, "`)");
    const bool settable = !flags.empty() || !variables.empty();
    const std::string_view end = spec.end == SettingEnd::kBoth      ? "both"
                                 : spec.end == SettingEnd::kGateway ? "gateway"
                                                                    : "worker";
    StrAppend(
        &out, "| `", spec.name, "` | ", end, " | ", flags, " | ", variables, " | ",
        settable ? AcceptedForm(spec) : "", " | ",
        spec.derivation.empty() ? Cell(SettingText(defaults, spec)) : std::string(spec.derivation),
        " | ", spec.meaning, " |\n");
  }
  return out;
}

TEST(Settings, TheDocumentHasTheTable) {
  std::ifstream file(TENSORFERRY_SOURCE_DIR "/docs/settings.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(text.find(TableText()) != std::string::npos) << "docs/settings.md must hold this:\n"
                                                           << TableText();
}

}  // namespace
}  // namespace tensorferry
