#include "tools/bench/talk.h"

#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"
#include "tools/hex.h"

namespace tensorferry::tools::bench {
namespace {

absl::Status NotUnderstood(std::string_view line) {
  return MakeError(Reason::kProtocol, StrCat("not understood: ", std::string(line.substr(0, 200))));
}

std::vector<absl::string_view> Words(std::string_view line) {
  return absl::StrSplit(AbslView(line), ' ', absl::SkipEmpty());
}

// The other end's own error, where the line is one.
absl::Status ErrorIn(std::string_view line) {
  constexpr std::string_view kError = "error ";
  if (!line.starts_with(kError)) return absl::OkStatus();
  line.remove_prefix(kError.size());
  const size_t end = line.find(' ');
  const std::optional<Reason> reason = ReasonFromName(line.substr(0, end));
  if (!reason || end == std::string_view::npos) return NotUnderstood(line);
  return MakeError(*reason, line.substr(end + 1));
}

}  // namespace

std::string FormatOpening(const Opening& opening) {
  return nlohmann::ordered_json{{"engine", opening.engine},   {"rpc", opening.rpc},
                                {"copy_in", opening.copy_in}, {"largest", opening.largest},
                                {"streams", opening.streams}, {"batch", opening.batch},
                                {"corrupt", opening.corrupt}, {"nixl_lib", opening.nixl_lib}}
      .dump();
}

absl::StatusOr<Opening> ParseOpening(std::string_view json) {
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto is = [&](const char* name, nlohmann::json::value_t type) {
    return object.contains(name) && object[name].type() == type;
  };
  using Type = nlohmann::json::value_t;
  if (!object.is_object() || !is("engine", Type::string) || !is("rpc", Type::string) ||
      !is("copy_in", Type::boolean) || !is("largest", Type::number_unsigned) ||
      !is("streams", Type::number_unsigned) || !is("batch", Type::number_unsigned) ||
      !is("corrupt", Type::number_unsigned) || !is("nixl_lib", Type::string)) {
    return NotUnderstood(json);
  }
  constexpr uint64_t kMost = 1 << 20;
  for (const char* many : {"streams", "batch"}) {
    if (object[many].get<uint64_t>() > kMost) return NotUnderstood(json);
  }
  return Opening{.engine = object["engine"].get<std::string>(),
                 .rpc = object["rpc"].get<std::string>(),
                 .copy_in = object["copy_in"].get<bool>(),
                 .largest = object["largest"].get<uint64_t>(),
                 .streams = object["streams"].get<uint64_t>(),
                 .batch = object["batch"].get<uint64_t>(),
                 .corrupt = object["corrupt"].get<uint64_t>(),
                 .nixl_lib = object["nixl_lib"].get<std::string>()};
}

std::string FormatRequest(const Request& request) {
  return StrCat("fill ", request.key, " ", request.nbytes, " ", request.count);
}

absl::StatusOr<Request> ParseRequest(std::string_view line) {
  const auto words = Words(line);
  Request request;
  if (words.size() != 4 || words[0] != "fill" || !absl::SimpleAtoi(words[1], &request.key) ||
      !absl::SimpleAtoi(words[2], &request.nbytes) || !absl::SimpleAtoi(words[3], &request.count) ||
      request.count == 0) {
    return NotUnderstood(line);
  }
  return request;
}

std::string FormatOffer(const Offer& offer) {
  return StrCat("ok ", offer.descriptor.empty() ? "-" : absl::BytesToHexString(offer.descriptor),
                " ", offer.gateway.count(), " ", offer.began.time_since_epoch().count(), " ",
                absl::StrFormat("%.9f", offer.fill_cpu), " ", offer.faults,
                offer.transport.empty() ? "" : " ", offer.transport);
}

absl::StatusOr<Offer> ParseOffer(std::string_view line) {
  if (absl::Status error = ErrorIn(line); !error.ok()) return error;
  if (line == "full") return MakeError(Reason::kBusy, "the gateway has no room at this moment");
  const auto words = Words(line);
  int64_t gateway = 0, began = 0;
  Offer offer;
  if (words.size() < 5 || words.size() > 7 || words[0] != "ok" ||
      !absl::SimpleAtoi(words[2], &gateway) || !absl::SimpleAtoi(words[3], &began) ||
      !absl::SimpleAtod(words[4], &offer.fill_cpu) ||
      (words.size() > 5 && !absl::SimpleAtoi(words[5], &offer.faults))) {
    return NotUnderstood(line);
  }
  if (words[1] != "-") {
    absl::StatusOr<std::string> descriptor = FromHex(StdView(words[1]));
    if (!descriptor.ok()) return NotUnderstood(line);
    offer.descriptor = *std::move(descriptor);
  }
  offer.gateway = Duration(gateway);
  offer.began = Instant(Duration(began));
  if (words.size() > 6) offer.transport = std::string(words[6]);
  return offer;
}

std::string FormatError(const absl::Status& status) {
  const std::string_view reason = ReasonNameOf(status);
  std::string line =
      StrCat("error ", reason.empty() ? "system_error" : reason, " ", status.message());
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  return line;
}

absl::StatusOr<std::string> AnswerTo(std::string_view word,
                                     const absl::StatusOr<std::string>& line) {
  if (!line.ok()) return line.status();
  if (absl::Status error = ErrorIn(*line); !error.ok()) return error;
  if (*line == word) return std::string();
  if (!line->starts_with(StrCat(word, " "))) return NotUnderstood(*line);
  return line->substr(word.size() + 1);
}

}  // namespace tensorferry::tools::bench
