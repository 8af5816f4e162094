#include "tensorferry/policy/settings.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "tensorferry/base/error.h"
#include "tensorferry/base/net.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

using Kind = SettingOrigin::Kind;

constexpr uint64_t kInt32Max = 2147483647;

constexpr SettingSpec kTable[] = {
    {.name = "mode",
     .member = &Settings::mode,
     .flags = {"multimodal-tensor-transport", "lane"},
     .variable = "SMG_MM_TENSOR_TRANSPORT",
     .deprecated = "SMG_TOKENSPEED_MM_TENSOR_TRANSPORT",
     .meaning = "how tensors travel; rdma is another word for remote"},
    {.name = "pixel_rdma",
     .member = &Settings::pixel_rdma,
     .flags = {"mm-pixel-rdma"},
     .variable = "SMG_MM_PIXEL_RDMA",
     .off_is_unset = true,
     .meaning = "switches lane remote on, beside the mode"},
    {.name = "remote_lane",
     .member = &Settings::remote_lane,
     .derivation = "on with mode remote or pixel_rdma",
     .meaning = "lane remote is on"},
    {.name = "allow_fallback",
     .end = SettingEnd::kGateway,
     .member = &Settings::allow_fallback,
     .flags = {"allow-fallback"},
     .variable = "TENSORFERRY_ALLOW_FALLBACK",
     .meaning = "take another lane where the mode's cannot be had, rather than fail"},
    {.name = "assume_pull",
     .end = SettingEnd::kGateway,
     .member = &Settings::assume_pull,
     .flags = {"assume-pull"},
     .variable = "TENSORFERRY_ASSUME_PULL",
     .meaning = "stock workers fetch over nixl, although they do not say so"},
    {.name = "shm_min_bytes",
     .end = SettingEnd::kGateway,
     .member = &Settings::shm_min_bytes,
     .flags = {"multimodal-shm-min-bytes", "shm-min-bytes"},
     .variable = "SMG_MM_SHM_MIN_BYTES",
     .deprecated = "SMG_TOKENSPEED_MM_SHM_MIN_BYTES",
     .meaning = "smaller tensors do not go by shm"},
    {.name = "remote_min_bytes",
     .end = SettingEnd::kGateway,
     .member = &Settings::remote_min_bytes,
     .flags = {"remote-min-bytes"},
     .variable = "TENSORFERRY_REMOTE_MIN_BYTES",
     .meaning = "smaller tensors do not go by remote"},
    {.name = "listen_ip",
     .end = SettingEnd::kGateway,
     .member = &Settings::listen_ip,
     .flags = {"rdma-listen-ip"},
     .variable = "SMG_RDMA_LISTEN_IP",
     .meaning = "where workers fetch from; without it a gateway serves no lane remote"},
    {.name = "listen_port",
     .end = SettingEnd::kGateway,
     .member = &Settings::listen_port,
     .flags = {"rdma-listen-port"},
     .variable = "SMG_RDMA_LISTEN_PORT",
     .min = 1,
     .max = 65535,
     .meaning = "the port at listen_ip"},
    {.name = "slot_bytes",
     .member = &Settings::slot_bytes,
     .flags = {"rdma-slot-bytes"},
     .variable = "SMG_RDMA_SLOT_BYTES",
     .min = 1,
     .cap = kMaxArenaBytes,
     .meaning = "with the slots, what the sizes below are derived from"},
    {.name = "pool_slots",
     .end = SettingEnd::kGateway,
     .member = &Settings::pool_slots,
     .flags = {"rdma-pool-slots"},
     .variable = "SMG_RDMA_POOL_SLOTS",
     .min = 1,
     .meaning = "slots of the arena; reduced to what 8 GiB hold, at least one"},
    {.name = "arena_bytes",
     .end = SettingEnd::kGateway,
     .member = &Settings::arena_bytes,
     .flags = {"arena-bytes"},
     .min = 1,
     .derivation = "pool_slots × slot_bytes, at most 8 GiB",
     .meaning = "memory for tensors on their way"},
    {.name = "landing_slots",
     .end = SettingEnd::kWorker,
     .member = &Settings::landing_slots,
     .flags = {"rdma-landing-slots"},
     .variable = "SMG_RDMA_LANDING_SLOTS",
     .min = 1,
     .meaning = "slots of the landing memory; reduced to what 8 GiB hold, at least one"},
    {.name = "landing_bytes",
     .end = SettingEnd::kWorker,
     .member = &Settings::landing_bytes,
     .flags = {"landing-bytes"},
     .min = 1,
     .derivation = "landing_slots × slot_bytes, at most 8 GiB",
     .meaning = "memory for tensors that arrive"},
    {.name = "landing_wait_s",
     .member = &Settings::landing_wait_s,
     .flags = {"rdma-landing-wait-s"},
     .variable = "SMG_RDMA_LANDING_WAIT_S",
     .meaning = "how long a worker waits for landing memory; the gateway must know it"},
    {.name = "read_timeout_s",
     .member = &Settings::read_timeout_s,
     .flags = {"rdma-read-timeout-s"},
     .variable = "SMG_RDMA_READ_TIMEOUT_S",
     .min = 1,
     .meaning = "how long a worker reads; the gateway must know it"},
    {.name = "hold_s",
     .member = &Settings::hold_s,
     .derivation = "landing_wait_s + read_timeout_s",
     .meaning = "how long a worker may need a lease"},
    {.name = "slot_ttl_s",
     .end = SettingEnd::kGateway,
     .member = &Settings::slot_ttl_s,
     .flags = {"rdma-slot-ttl-s"},
     .variable = "SMG_RDMA_SLOT_TTL_S",
     .derivation = "hold_s + 30",
     .meaning = "when a lease of which nothing is heard ends; ignored unless above hold_s"},
    {.name = "image_dtype",
     .end = SettingEnd::kGateway,
     .member = &Settings::image_dtype,
     .variable = "SMG_TOKENSPEED_IMAGE_ENCODER_INPUT_DTYPE",
     .meaning = "dtype of pictures for TokenSpeed"},
    {.name = "video_dtype",
     .end = SettingEnd::kGateway,
     .member = &Settings::video_dtype,
     .variable = "SMG_TOKENSPEED_VIDEO_ENCODER_INPUT_DTYPE",
     .meaning = "dtype of videos for TokenSpeed"},
    {.name = "audio_dtype",
     .end = SettingEnd::kGateway,
     .member = &Settings::audio_dtype,
     .variable = "SMG_TOKENSPEED_AUDIO_ENCODER_INPUT_DTYPE",
     .meaning = "dtype of sounds for TokenSpeed"},
    {.name = "tokenspeed_dtype",
     .end = SettingEnd::kGateway,
     .member = &Settings::tokenspeed_dtype,
     .variable = "SMG_TOKENSPEED_ENCODER_INPUT_DTYPE",
     .meaning = "dtype for TokenSpeed where the modality's own is not set"},
    {.name = "vllm_dtype",
     .end = SettingEnd::kGateway,
     .member = &Settings::vllm_dtype,
     .variable = "SMG_VLLM_ENCODER_INPUT_DTYPE",
     .meaning = "dtype for vLLM"},
    {.name = "send_metadata",
     .end = SettingEnd::kWorker,
     .member = &Settings::send_metadata,
     .variable = "SMG_RDMA_SEND_MD",
     .meaning =
         "SMG's workers: send own metadata before reading. No READ needs it, and ours never do"},
    {.name = "unlink_after_read",
     .end = SettingEnd::kWorker,
     .member = &Settings::unlink_after_read,
     .variable = "TOKENSPEED_UNLINK_MM_SHM_AFTER_READ",
     .meaning = "remove a file under /dev/shm once it was read"},
    {.name = "epd_ingest_offloop",
     .end = SettingEnd::kWorker,
     .member = &Settings::epd_ingest_offloop,
     .variable = "EPD_INGEST_OFFLOOP",
     .meaning = "SMG's encoder: read requests on threads of its own. Ours always do"},
    {.name = "epd_pixel_shm",
     .end = SettingEnd::kWorker,
     .member = &Settings::epd_pixel_shm,
     .variable = "EPD_PIXEL_SHM",
     .meaning = "SMG's encoder: hand features to its engine by shared memory. Ours has no engine"},
    {.name = "max_message_bytes",
     .end = SettingEnd::kWorker,
     .member = &Settings::max_message_bytes,
     .flags = {"max-message-bytes"},
     .variable = "TOKENSPEED_GRPC_MAX_MESSAGE_BYTES",
     .min = 1024,
     .max = kInt32Max,
     .meaning = "largest gRPC message that is taken"},
    {.name = "log_mm_timing",
     .end = SettingEnd::kGateway,
     .member = &Settings::log_mm_timing,
     .flags = {"log-mm-timing"},
     .variable = "SMG_LOG_MM_TIMING",
     .meaning = "log how long each tensor took"},
};
static_assert(std::size(kTable) == kSettingCount);

size_t IndexOf(const SettingSpec& spec) { return static_cast<size_t>(&spec - kTable); }
SettingOrigin& OriginIn(Settings& settings, std::string_view name) {
  return settings.origins[IndexOf(*FindSetting(name))];
}

bool Settable(const SettingSpec& spec) { return !spec.flags[0].empty() || !spec.variable.empty(); }

// One text that sets a setting, and how to call the place where it stood.
struct Given {
  std::string text;
  std::string source;
  SettingOrigin origin;
};

// Values come from anywhere: shown on one line, and not at any length.
std::string Shown(std::string_view text) {
  constexpr size_t kMost = 80;
  const std::string escaped = absl::CHexEscape(AbslView(text.substr(0, kMost)));
  return StrCat("\"", escaped, text.size() > kMost ? "…\"" : "\"");
}

absl::Status Refusal(const SettingSpec& spec, const Given& given, std::string_view why) {
  return MakeError(Reason::kBadOption, StrCat(given.source, "=", Shown(given.text), " ", why,
                                              ": give ", AcceptedForm(spec)));
}

absl::StatusOr<uint64_t> ParseNumber(const SettingSpec& spec, std::string_view text) {
  absl::StatusOr<uint64_t> value = ParseUnsigned(text);
  if (!value.ok()) return value;
  if (*value < spec.min) return MakeError(Reason::kBadOption, StrCat("is below ", spec.min));
  if (*value > spec.max) return MakeError(Reason::kBadOption, StrCat("is over ", spec.max));
  return value;
}

absl::StatusOr<Mode> ParseModeSetting(std::string_view text) {
  absl::StatusOr<Mode> mode = ParseMode(text);
  if (!mode.ok()) return MakeError(Reason::kBadOption, "is no mode");
  return mode;
}

// The parser of a setting's type.
template <class Value>
absl::StatusOr<Value> Parse(const SettingSpec& spec, std::string_view text) {
  if constexpr (std::is_same_v<Value, Mode>) {
    return ParseModeSetting(text);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return ParseSwitch(text);
  } else if constexpr (std::is_same_v<Value, uint64_t>) {
    return ParseNumber(spec, text);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return ParseListenIp(text);
  } else if constexpr (std::is_same_v<Value, SendMetadata>) {
    return ParseSendMetadata(text);
  } else {
    absl::StatusOr<Dtype> dtype = ParseEncoderDtype(text);
    if (!dtype.ok()) return dtype.status();
    return Value(*dtype);
  }
}

template <class Value>
using ValueOf = std::remove_reference_t<decltype(std::declval<Settings&>().*std::declval<Value>())>;

absl::Status Store(const SettingSpec& spec, const Given& given, Settings* out) {
  return std::visit(
      [&](const auto member) -> absl::Status {
        using Value = ValueOf<decltype(member)>;
        absl::StatusOr<Value> value = Parse<Value>(spec, given.text);
        if (!value.ok()) return Refusal(spec, given, StdView(value.status().message()));
        if constexpr (std::is_same_v<Value, uint64_t>) {
          if (*value > spec.cap) {
            out->warnings.push_back(StrCat(given.source, "=", *value, " is over ", spec.cap,
                                           " and was reduced to that"));
            *value = spec.cap;
          }
        }
        out->*member = *std::move(value);
        out->origins[IndexOf(spec)] = given.origin;
        return absl::OkStatus();
      },
      spec.member);
}

// The flags and the configuration by rows of the table.
using GivenByRow = std::array<std::optional<Given>, kSettingCount>;

absl::Status Add(const SettingSpec* spec, Given given, GivenByRow* rows) {
  if (spec == nullptr || !Settable(*spec)) {
    return MakeError(Reason::kBadOption, StrCat(given.source,
                                                spec == nullptr ? ": there is no such setting"
                                                                : " is derived and cannot be set",
                                                "; `tensorferry explain` lists them"));
  }
  std::optional<Given>& row = (*rows)[IndexOf(*spec)];
  if (row) {
    return MakeError(Reason::kBadOption, StrCat(given.source, " sets ", spec->name,
                                                ", and so does ", row->source, ": give it once"));
  }
  row = std::move(given);
  return absl::OkStatus();
}

const SettingSpec* FindFlag(std::string_view flag) {
  for (const SettingSpec& spec : kTable) {
    for (const std::string_view name : spec.flags) {
      if (!name.empty() && name == flag) return &spec;
    }
  }
  return nullptr;
}

bool Blank(const std::optional<std::string>& text) {
  return !text || absl::StripAsciiWhitespace(*text).empty();
}

std::optional<Given> LookUp(const SettingSpec& spec, const SettingSources& sources,
                            std::vector<std::string>* warnings) {
  if (!sources.environment) return std::nullopt;
  if (sources.end != SettingEnd::kBoth && spec.end != SettingEnd::kBoth &&
      spec.end != sources.end) {
    return std::nullopt;
  }
  for (const std::string_view variable : {spec.variable, spec.deprecated}) {
    if (variable.empty()) continue;
    std::optional<std::string> text = sources.environment(variable);
    if (Blank(text)) continue;
    if (variable == spec.deprecated) {
      warnings->push_back(
          StrCat("variable ", variable, " is deprecated: set ", spec.variable, " instead"));
    }
    return Given{.text = *std::move(text),
                 .source = std::string(variable),
                 .origin = {.kind = Kind::kEnvironment, .variable = variable}};
  }
  return std::nullopt;
}

// Off, where that leaves the setting to what comes next.
bool LeavesItOpen(const SettingSpec& spec, const Given& given) {
  if (!spec.off_is_unset) return false;
  const absl::StatusOr<bool> on = ParseSwitch(given.text);
  return on.ok() && !*on;
}

absl::Status Resolve(const SettingSpec& spec, const SettingSources& sources,
                     const std::optional<Given>& flag, const std::optional<Given>& config,
                     Settings* out) {
  // Also what is outweighed must be right: it stands in a file or on the same command line.
  if (flag && config) {
    if (absl::Status s = CheckSetting(spec, config->source, config->text); !s.ok()) return s;
  }
  for (const std::optional<Given>* given : {&flag, &config}) {
    if (!*given) continue;
    if (absl::Status s = Store(spec, **given, out); !s.ok()) return s;
    if (!LeavesItOpen(spec, **given)) return absl::OkStatus();
  }
  const std::optional<Given> variable = LookUp(spec, sources, &out->warnings);
  return variable ? Store(spec, *variable, out) : absl::OkStatus();
}

void ReduceSlots(std::string_view name, std::string_view what, uint64_t slot_bytes, uint64_t* slots,
                 Settings* out) {
  const uint64_t most = std::max<uint64_t>(1, kMaxArenaBytes / slot_bytes);
  if (*slots <= most) return;
  out->warnings.push_back(StrCat(name, "=", *slots, " of slot_bytes=", slot_bytes, " would make ",
                                 what, " over 8 GiB: reduced to ", most));
  *slots = most;
}

bool IsGiven(const Settings& settings, std::string_view name) {
  return settings.OriginOf(name).kind != Kind::kDefault;
}

void Derive(const SettingSources& sources, Settings* out) {
  const auto derived = [&](std::string_view name) {
    OriginIn(*out, name) = {.kind = Kind::kDerived, .variable = {}};
  };
  out->remote_lane = out->mode == Mode::kRemote || out->pixel_rdma;
  derived("remote_lane");
  if (out->remote_lane && out->listen_ip.empty() && !sources.finds_address &&
      sources.end != SettingEnd::kWorker) {
    out->warnings.push_back(
        "lane remote is on, but listen_ip is empty, so that a gateway does not serve it: set "
        "SMG_RDMA_LISTEN_IP or --rdma-listen-ip");
  }
  ReduceSlots("pool_slots", "an arena", out->slot_bytes, &out->pool_slots, out);
  ReduceSlots("landing_slots", "landing memory", out->slot_bytes, &out->landing_slots, out);
  if (!IsGiven(*out, "arena_bytes")) {
    out->arena_bytes = MultiplyCapped(out->pool_slots, out->slot_bytes);
    derived("arena_bytes");
  }
  if (!IsGiven(*out, "landing_bytes")) {
    out->landing_bytes = MultiplyCapped(out->landing_slots, out->slot_bytes);
    derived("landing_bytes");
  }
  out->hold_s = AddCapped(out->landing_wait_s, out->read_timeout_s);
  derived("hold_s");
  const bool given = IsGiven(*out, "slot_ttl_s");
  if (given && out->slot_ttl_s > out->hold_s) return;
  const uint64_t ttl = AddCapped(out->hold_s, kTtlSlackSeconds);
  if (given) {
    out->warnings.push_back(
        StrCat("slot_ttl_s=", out->slot_ttl_s, " is not above the ", out->hold_s,
               " s that a worker may need a lease, and is ignored: it is ", ttl));
  }
  out->slot_ttl_s = ttl;
  derived("slot_ttl_s");
}

}  // namespace

std::string SettingOrigin::ToString() const {
  switch (kind) {
    case Kind::kDefault:
      return "default";
    case Kind::kConfig:
      return "config";
    case Kind::kFlag:
      return "flag";
    case Kind::kEnvironment:
      return StrCat("environment ", variable);
    case Kind::kDerived:
      return "derived";
    case Kind::kWorker:
      return "worker";
  }
  return "";
}

std::string Settings::listen() const {
  const absl::StatusOr<SocketAddress> address =
      SocketAddress::ParseHost(listen_ip, static_cast<uint16_t>(listen_port));
  return address.ok() ? address->ToString() : "";
}

const SettingOrigin& Settings::OriginOf(std::string_view name) const {
  return origins[IndexOf(*FindSetting(name))];
}

std::span<const SettingSpec> SettingTable() { return kTable; }

const SettingSpec* FindSetting(std::string_view name) {
  for (const SettingSpec& spec : kTable) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::string AcceptedForm(const SettingSpec& spec) {
  return std::visit(
      [&](const auto member) -> std::string {
        using Value = ValueOf<decltype(member)>;
        if constexpr (std::is_same_v<Value, Mode>) return "inline, shm, auto, remote or rdma";
        if constexpr (std::is_same_v<Value, bool>) return "1/true/yes/on or 0/false/no/off";
        if constexpr (std::is_same_v<Value, std::string>) return "a numeric IP address";
        if constexpr (std::is_same_v<Value, SendMetadata>) {
          return "auto, 1/true/yes/on or 0/false/no/off";
        }
        if constexpr (std::is_same_v<Value, std::optional<Dtype>>) {
          return "float32/fp32/f32, bfloat16/bf16 or float16/fp16/f16/half";
        }
        if (spec.max != UINT64_MAX) return StrCat("a whole number, ", spec.min, " to ", spec.max);
        if (spec.min != 0) return StrCat("a whole number, from ", spec.min);
        return "a whole number";
      },
      spec.member);
}

absl::Status CheckSetting(const SettingSpec& spec, std::string_view source, std::string_view text) {
  Settings unused;
  return Store(spec, {.text = std::string(text), .source = std::string(source), .origin = {}},
               &unused);
}

absl::StatusOr<Settings> ParseSettings(const SettingSources& sources) {
  GivenByRow flags;
  GivenByRow config;
  for (const auto& [flag, text] : sources.flags) {
    Given given{.text = text, .source = StrCat("--", flag), .origin = {.kind = Kind::kFlag}};
    if (absl::Status s = Add(FindFlag(flag), std::move(given), &flags); !s.ok()) return s;
  }
  for (const auto& [name, text] : sources.config) {
    Given given{
        .text = text, .source = StrCat("configuration: ", name), .origin = {.kind = Kind::kConfig}};
    if (absl::Status s = Add(FindSetting(name), std::move(given), &config); !s.ok()) return s;
  }
  Settings out;
  for (const SettingSpec& spec : kTable) {
    const size_t i = IndexOf(spec);
    if (absl::Status s = Resolve(spec, sources, flags[i], config[i], &out); !s.ok()) return s;
  }
  Derive(sources, &out);
  return out;
}

absl::StatusOr<Settings> ForWorker(const Settings& settings, const WorkerOverrides& overrides) {
  Settings out = settings;
  const SettingOrigin origin{.kind = Kind::kWorker, .variable = {}};
  const auto store = [&](std::string_view name, std::string_view field,
                         const std::optional<std::string>& text) -> absl::Status {
    if (!text) return absl::OkStatus();
    return Store(*FindSetting(name),
                 {.text = *text, .source = StrCat("worker: ", field), .origin = origin}, &out);
  };
  if (absl::Status s =
          store("shm_min_bytes", "multimodal_shm_min_bytes", overrides.multimodal_shm_min_bytes);
      !s.ok()) {
    return s;
  }
  if (!overrides.multimodal_tensor_transport) return out;
  if (absl::Status s =
          store("mode", "multimodal_tensor_transport", overrides.multimodal_tensor_transport);
      !s.ok()) {
    return s;
  }
  // What is said of this worker is said about lane remote too. SMG's switch is the process's.
  if (out.mode != Mode::kAuto) {
    out.remote_lane = out.mode == Mode::kRemote;
    OriginIn(out, "remote_lane") = origin;
  }
  return out;
}

LanePolicy PolicyOf(const Settings& settings) {
  // The switch is older than the modes, of which inline is the default: beside it, it is a mode.
  const Mode mode =
      settings.mode == Mode::kInline && settings.remote_lane ? Mode::kRemote : settings.mode;
  return {.mode = mode,
          .allow_fallback = settings.allow_fallback && mode != Mode::kInline,
          .shm_min_bytes = settings.shm_min_bytes,
          .remote_min_bytes = settings.remote_min_bytes,
          .always_minimum = true,
          .allow_remote = settings.remote_lane,
          .assume_pull = settings.assume_pull};
}

std::string SettingText(const Settings& settings, const SettingSpec& spec) {
  return std::visit(
      [&](const auto member) -> std::string {
        const auto& value = settings.*member;
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, Mode>) return std::string(ModeName(value));
        if constexpr (std::is_same_v<Value, bool>) return value ? "on" : "off";
        if constexpr (std::is_same_v<Value, uint64_t>) return StrCat(value);
        if constexpr (std::is_same_v<Value, std::string>) return value;
        if constexpr (std::is_same_v<Value, SendMetadata>) {
          return std::string(SendMetadataName(value));
        }
        if constexpr (std::is_same_v<Value, std::optional<Dtype>>) {
          return value ? std::string(DtypeName(*value)) : "";
        }
      },
      spec.member);
}

}  // namespace tensorferry
