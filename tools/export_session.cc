#include "tools/export_session.h"

#include <charconv>
#include <utility>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/file_io.h"
#include "tools/sha256.h"

namespace tensorferry::tools {
namespace {

constexpr std::string_view kCancel = "cancel ";

std::optional<int64_t> ParseKey(std::string_view text) {
  int64_t key = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, key);
  if (error != std::errc() || at != end) return std::nullopt;
  return key;
}

std::string_view EventName(LeaseEvent::Kind kind) {
  switch (kind) {
    case LeaseEvent::Kind::kReleased:
      return "released";
    case LeaseEvent::Kind::kExpired:
      return "expired";
    case LeaseEvent::Kind::kCancelled:
      return "cancelled";
  }
  return "released";
}

}  // namespace

void ExportSession::Line(std::string_view line) {
  const bool cancel = line.starts_with(kCancel);
  const std::string_view rest = cancel ? line.substr(kCancel.size()) : line;
  const size_t blank = cancel ? rest.size() : rest.find(' ');
  const std::optional<int64_t> key = ParseKey(rest.substr(0, blank));
  const bool names_file = blank != std::string_view::npos && blank + 1 < rest.size();
  if (!key.has_value() || (!cancel && !names_file)) {
    return Refuse(
        key, MakeError(Reason::kBadInput, StrCat("\"", line.substr(0, 80),
                                                 "\" is neither KEY FILE nor "
                                                 "cancel KEY (KEY: a whole number of 64 bits)")));
  }
  if (!cancel) return Export(*key, std::string(rest.substr(blank + 1)));
  // The lease's end is an event, and that is the answer.
  if (absl::Status s = exporter_->Cancel(*key); !s.ok()) Refuse(*key, s);
}

void ExportSession::Event(const LeaseEvent& event) {
  const int64_t key = event.key.value_or(0);
  if (const auto found = keys_.find(key); found != keys_.end()) keys_.erase(found);
  sink_({{"event", EventName(event.kind)}, {"key", key}});
}

void ExportSession::Export(int64_t key, const std::string& path) {
  uint64_t nbytes = 0;
  const absl::StatusOr<std::string> descriptor = Publish(key, path, &nbytes);
  if (!descriptor.ok()) return Refuse(key, descriptor.status());
  keys_.insert(key);
  sink_({{"event", "exported"},
         {"key", key},
         {"nbytes", nbytes},
         {"transport", smg_ ? "nixl" : "tensorferry"},
         {"descriptor",
          Hex({reinterpret_cast<const uint8_t*>(descriptor->data()), descriptor->size()})}});
}

absl::StatusOr<std::string> ExportSession::Publish(int64_t key, const std::string& path,
                                                   uint64_t* nbytes) {
  const absl::StatusOr<OpenFile> file = OpenForReading(path);
  if (!file.ok()) return file.status();
  *nbytes = file->size;
  Staged staged = exporter_->Stage(file->size);
  // Outside the arena nobody could fetch it: then publishing only says why.
  if (staged.in_arena()) {
    if (absl::Status s = ReadInto(*file, staged.bytes()); !s.ok()) return Annotate(s, path);
  }
  Lease lease = std::move(staged).Publish({.key = key, .readers = readers_});
  if (!lease.exported().ok()) return Annotate(lease.exported(), path);
  absl::StatusOr<std::string> descriptor = smg_ ? lease.SmgDescriptor() : lease.Descriptor();
  if (descriptor.ok()) std::move(lease).Detach();
  return descriptor;
}

void ExportSession::Refuse(std::optional<int64_t> key, const absl::Status& status) {
  sink_({{"event", "refused"},
         {"key", key ? nlohmann::ordered_json(*key) : nlohmann::ordered_json(nullptr)},
         {"reason", StrCat(status.message(), " (", ReasonNameOf(status), ")")}});
}

}  // namespace tensorferry::tools
