#include "tensorferry/wire/doc_testing.h"

#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tensorferry::wire {
namespace {

constexpr absl::string_view kExample = "<!-- example: ";

// The cells of "| a | b |".
std::vector<std::string> Cells(absl::string_view line) {
  std::vector<std::string> cells;
  for (absl::string_view cell : absl::StrSplit(line, '|')) {
    cells.emplace_back(absl::StripAsciiWhitespace(cell));
  }
  return cells;
}

}  // namespace

WireDoc ReadWireDoc() {
  WireDoc doc;
  std::ifstream file(TENSORFERRY_SOURCE_DIR "/docs/wire.md");
  std::optional<DocTable> first_table;
  bool in_table = false;
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view text = line;
    if (in_table && !absl::StartsWith(text, "|")) {
      in_table = false;
      if (!first_table) first_table = doc.tables.back();
    }
    if (absl::StartsWith(text, "#")) first_table.reset();
    if (absl::StartsWith(text, "| Offset |")) {
      in_table = true;
      doc.tables.emplace_back();
    } else if (in_table && !absl::StartsWith(text, "|---")) {
      const std::vector<std::string> cells = Cells(text);
      doc.tables.back().push_back({.offset = cells.at(1), .size = cells.at(2)});
    } else if (absl::ConsumePrefix(&text, kExample) && absl::ConsumeSuffix(&text, " -->")) {
      DocEntry& example = doc.examples[std::string(text)];
      example.table = std::exchange(first_table, std::nullopt);
      std::getline(file, line);  // the fence
      while (std::getline(file, line) && line != "```") {
        const std::string hex = line.substr(0, line.find("  "));
        example.lines.push_back(absl::HexStringToBytes(absl::StrReplaceAll(hex, {{" ", ""}})));
      }
    }
  }
  return doc;
}

std::string DocExample(std::string_view name) {
  std::string bytes;
  const WireDoc doc = ReadWireDoc();
  if (const auto found = doc.examples.find(std::string(name)); found != doc.examples.end()) {
    for (const std::string& line : found->second.lines) bytes += line;
  }
  return bytes;
}

}  // namespace tensorferry::wire
