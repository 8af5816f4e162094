// What `tensorferry export` does with the lines that it reads, apart from reading them.
//
//   ExportSession session(exporter.get(), {.readers = 1}, sink);
//   session.Line("42 /data/raw.bin");                // sink gets {"event":"exported","key":42,…}
//   session.Event({.kind = kReleased, .key = 42});   // sink gets {"event":"released","key":42}
//   while (session.outstanding() > 0) ...
//
// Thread-safety: none: lease events are queued by their own threads and handed in by the one that
// owns this.
// Ownership: leases are detached; they end with their readers, their time, or the exporter.
#ifndef TENSORFERRY_TOOLS_EXPORT_SESSION_H_
#define TENSORFERRY_TOOLS_EXPORT_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "tensorferry/exporter/exporter.h"

namespace tensorferry::tools {

class ExportSession {
 public:
  using Sink = std::function<void(const nlohmann::ordered_json&)>;
  // `smg`: with descriptors for SMG's workers (kind "nixl") instead of our own.
  ExportSession(Exporter* exporter, uint32_t readers, bool smg, Sink sink)
      : exporter_(exporter), readers_(readers), smg_(smg), sink_(std::move(sink)) {}

  // `KEY FILE` or `cancel KEY`. Each is answered by exported, cancelled (as an Event) or refused.
  void Line(std::string_view line);
  void Event(const LeaseEvent& event);
  // Leases that may still be read.
  size_t outstanding() const { return keys_.size(); }

 private:
  void Export(int64_t key, const std::string& path);
  absl::StatusOr<std::string> Publish(int64_t key, const std::string& path, uint64_t* nbytes);
  void Refuse(std::optional<int64_t> key, const absl::Status& status);

  Exporter* const exporter_;
  const uint32_t readers_;
  const bool smg_;
  const Sink sink_;
  std::multiset<int64_t> keys_;
};

}  // namespace tensorferry::tools

#endif  // TENSORFERRY_TOOLS_EXPORT_SESSION_H_
