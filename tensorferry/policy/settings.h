// What an operator sets, at the gateway and at the worker, and where each value came from.
//
//   auto settings = ParseSettings({.config = {{"slot_bytes", "16777216"}},
//                                  .flags = {{"rdma-listen-ip", "10.0.0.5"}},
//                                  .environment = lookup});
//   if (!settings.ok()) return settings.status();     // names the variable, the value, what is taken
//   for (const std::string& w : settings->warnings) log(w);           // once, each
//   LanePolicy policy = PolicyOf(*ForWorker(*settings, overrides));   // of one worker
//
// One type for both ends, so that they mean the same by the same words. It knows SMG's flags and
// variables, by one table (SettingTable) from which parsing, `tensorferry explain` and
// docs/settings.md are made. A flag goes before the configuration, that before the environment, and
// that before the default; what a worker says of itself goes before all (ForWorker). A variable
// that is unset or blank is not there. What does not parse, is out of range, or is zero where
// nothing would work is refused (kBadOption) and never replaced by a default.
//
// Thread-safety: values and pure functions. The library reads no environment: `environment` is the
// caller's, and called only from ParseSettings.
#ifndef TENSORFERRY_POLICY_SETTINGS_H_
#define TENSORFERRY_POLICY_SETTINGS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorferry/base/clock.h"
#include "tensorferry/base/dtype.h"
#include "tensorferry/base/export.h"
#include "tensorferry/policy/decide.h"
#include "tensorferry/policy/lane.h"
#include "tensorferry/policy/setting_values.h"

namespace tensorferry {

// The most that an arena or a landing memory derived from slots may have.
inline constexpr uint64_t kMaxArenaBytes = uint64_t{8} << 30;
// How much longer a lease lives than a worker can hold on to it.
inline constexpr uint64_t kTtlSlackSeconds = 30;

struct SettingOrigin {
  enum class Kind : uint8_t { kDefault, kConfig, kFlag, kEnvironment, kDerived, kWorker };
  Kind kind = Kind::kDefault;
  std::string_view variable = {};  // of kEnvironment; a name of the table

  // "default", "config", "flag", "environment SMG_RDMA_POOL_SLOTS", "derived" or "worker".
  TENSORFERRY_EXPORT std::string ToString() const;
  friend bool operator==(const SettingOrigin&, const SettingOrigin&) = default;
};

inline constexpr size_t kSettingCount = 29;

// The meaning of each is in the table.
struct Settings {
  Mode mode = Mode::kInline;
  bool pixel_rdma = false;
  bool remote_lane = false;
  bool allow_fallback = true;
  bool assume_pull = false;
  uint64_t shm_min_bytes = 65536;
  uint64_t remote_min_bytes = 65536;
  std::string listen_ip = {};
  uint64_t listen_port = 18515;
  uint64_t slot_bytes = uint64_t{32} << 20;
  uint64_t pool_slots = 64;
  uint64_t arena_bytes = 0;
  uint64_t landing_slots = 64;
  uint64_t landing_bytes = 0;
  uint64_t landing_wait_s = 120;
  uint64_t read_timeout_s = 60;
  uint64_t hold_s = 0;
  uint64_t slot_ttl_s = 0;
  std::optional<Dtype> image_dtype = {};
  std::optional<Dtype> video_dtype = {};
  std::optional<Dtype> audio_dtype = {};
  std::optional<Dtype> tokenspeed_dtype = {};
  std::optional<Dtype> vllm_dtype = {};
  SendMetadata send_metadata = SendMetadata::kAuto;
  bool unlink_after_read = true;
  bool epd_ingest_offloop = true;
  bool epd_pixel_shm = true;
  uint64_t max_message_bytes = uint64_t{256} << 20;
  bool log_mm_timing = false;

  // What was clamped, ignored or is deprecated, each once. For the log.
  std::vector<std::string> warnings = {};
  std::array<SettingOrigin, kSettingCount> origins = {};  // in the table's order

  // The longest that a worker waits for memory and then reads: never below zero, never overflowed.
  Duration hold() const { return SecondsCapped(hold_s); }
  Duration slot_ttl() const { return SecondsCapped(slot_ttl_s); }
  // "IP:PORT", empty without an address.
  TENSORFERRY_EXPORT std::string listen() const;
  // Of the setting of this name; there must be one.
  TENSORFERRY_EXPORT const SettingOrigin& OriginOf(std::string_view name) const;
};

// Which end reads it.
enum class SettingEnd : uint8_t { kGateway, kWorker, kBoth };

// A row of the table.
struct SettingSpec {
  using Member = std::variant<Mode Settings::*, bool Settings::*, uint64_t Settings::*,
                              std::string Settings::*, std::optional<Dtype> Settings::*,
                              SendMetadata Settings::*>;
  std::string_view name;  // in a configuration, and in `explain`
  SettingEnd end = SettingEnd::kBoth;
  Member member;
  std::array<std::string_view, 2> flags = {};  // without dashes; SMG's first
  std::string_view variable = {};
  std::string_view deprecated = {};  // an older name of the variable
  // Of numbers: what is refused, and what larger ones are reduced to.
  uint64_t min = 0;
  uint64_t max = UINT64_MAX;
  uint64_t cap = UINT64_MAX;
  // A flag or a configuration that says off leaves it to the variable, as SMG's do.
  bool off_is_unset = false;
  // How it comes about where nothing sets it; empty: by the default.
  std::string_view derivation = {};
  std::string_view meaning;
};

TENSORFERRY_EXPORT std::span<const SettingSpec> SettingTable();
// Null when there is none.
TENSORFERRY_EXPORT const SettingSpec* FindSetting(std::string_view name);
// "a whole number, 1 to 65535"
TENSORFERRY_EXPORT std::string AcceptedForm(const SettingSpec& spec);
// OK for a text that ParseSettings takes for this setting, else kBadOption, naming `source`.
TENSORFERRY_EXPORT absl::Status CheckSetting(const SettingSpec& spec, std::string_view source,
                                             std::string_view text);

using SettingPairs = std::vector<std::pair<std::string, std::string>>;
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view)>;

struct SettingSources {
  SettingPairs config = {};  // by name
  SettingPairs flags = {};   // by flag, without dashes
  EnvironmentLookup environment = {};
  // What is only for the other end is not looked up, so that it cannot be wrong here.
  SettingEnd end = SettingEnd::kBoth;
  // The gateway finds an address by itself where listen_ip is empty.
  bool finds_address = false;
};

// kBadOption.
TENSORFERRY_EXPORT absl::StatusOr<Settings> ParseSettings(const SettingSources& sources);

// What the description of one worker sets for it alone (SMG's worker spec).
struct WorkerOverrides {
  std::optional<std::string> multimodal_tensor_transport = {};
  std::optional<std::string> multimodal_shm_min_bytes = {};
};

// The settings for one worker. kBadOption.
TENSORFERRY_EXPORT absl::StatusOr<Settings> ForWorker(const Settings& settings,
                                                      const WorkerOverrides& overrides);
// What DecideLanes takes of them.
TENSORFERRY_EXPORT LanePolicy PolicyOf(const Settings& settings);

// A value as text: "auto", "on", "65536", "bfloat16"; empty: none.
TENSORFERRY_EXPORT std::string SettingText(const Settings& settings, const SettingSpec& spec);

}  // namespace tensorferry

#endif  // TENSORFERRY_POLICY_SETTINGS_H_
