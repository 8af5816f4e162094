// Reads docs/wire.md, so that tests can hold its tables and examples against the code.
//
//   EXPECT_EQ(DocExample("tcp_request"), AsText(EncodeTcpRequest(request)));
//
// An example is a comment `<!-- example: NAME -->` and a fenced block of lines `HEX BYTES MEANING`.
// Its table is the first one since the heading or example before it.
#ifndef TENSORFERRY_WIRE_DOC_TESTING_H_
#define TENSORFERRY_WIRE_DOC_TESTING_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tensorferry::wire {

struct DocRow {
  std::string offset;
  std::string size;  // a number where the field's size is fixed
};
using DocTable = std::vector<DocRow>;

struct DocEntry {
  std::vector<std::string> lines;  // bytes of each line
  std::optional<DocTable> table;
};

struct WireDoc {
  std::vector<DocTable> tables;
  std::map<std::string, DocEntry> examples;
};

WireDoc ReadWireDoc();

// The bytes of one example; empty when there is none.
std::string DocExample(std::string_view name);

}  // namespace tensorferry::wire

#endif  // TENSORFERRY_WIRE_DOC_TESTING_H_
