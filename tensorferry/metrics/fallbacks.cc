#include "tensorferry/metrics/fallbacks.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "tensorferry/base/text.h"

namespace tensorferry {
namespace {

constexpr size_t kMostOfAName = 128;

void AppendField(std::string* line, std::string_view key, std::string_view value) {
  if (value.empty()) return;
  StrAppend(line, " ", key, "=");
  for (const char c : value.substr(0, kMostOfAName)) {
    if (absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' && c != '=' && c != '\\') {
      line->push_back(c);
    } else {
      absl::StrAppendFormat(line, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  if (value.size() > kMostOfAName) line->append("...");
}

std::string_view NameOf(LabelValue value) { return NameOfValue(value.set(), value.position()); }

}  // namespace

Fallbacks::Fallbacks(FallbacksOptions options)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : real_clock_),
      limit_(options_.limit) {}

void Fallbacks::Note(LabelValue from, LabelValue to, LabelValue reason,
                     const FallbackDetails& details) {
  Count(options_.metrics, options_.metric, {from, to, reason});
  if (!options_.log) return;
  const size_t kind = (from.position() * SizeOf(to.set()) + to.position()) * SizeOf(reason.set()) +
                      reason.position();
  const auto suppressed = limit_.Admit(kind, clock_.Now());
  if (!suppressed) return;
  std::string line = "fallback";
  AppendField(&line, "request", details.request);
  AppendField(&line, "worker", details.worker);
  AppendField(&line, "from", NameOf(from));
  AppendField(&line, "to", NameOf(to));
  AppendField(&line, "reason", NameOf(reason));
  AppendField(&line, "cause", details.cause);
  StrAppend(&line, " suppressed=", *suppressed);
  Log(options_.log, LogLevel::kWarning, line);
}

}  // namespace tensorferry
