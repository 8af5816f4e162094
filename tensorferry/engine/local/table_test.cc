#include "tensorferry/engine/local/table.h"

#include <cstddef>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tensorferry/wire/doc_testing.h"

namespace tensorferry::engine {
namespace {

// Processes of different builds share this memory.
TEST(TableTest, LayoutIsTheDocumentedOne) {
  EXPECT_EQ(offsetof(TableEntry, generation), 0u);
  EXPECT_EQ(offsetof(TableEntry, payload_offset), 8u);
  EXPECT_EQ(offsetof(TableEntry, nbytes), 16u);
  EXPECT_EQ(offsetof(TableEntry, token), 24u);
  EXPECT_EQ(offsetof(TableEntry, unused), 40u);

  const std::string bytes = wire::DocExample("table_entry");
  ASSERT_EQ(bytes.size(), sizeof(TableEntry));
  TableEntry entry = {};
  std::memcpy(static_cast<void*>(&entry), bytes.data(), bytes.size());
  EXPECT_EQ(entry.generation.load(), 7u);
  EXPECT_EQ(entry.payload_offset, 64u);
  EXPECT_EQ(entry.nbytes, 1204224u);
  wire::Token token;
  token.fill(0x22);
  EXPECT_TRUE(entry.HasToken(token));

  const std::string word_bytes = wire::DocExample("claim_word");
  ASSERT_EQ(word_bytes.size(), sizeof(ClaimWord));
  ClaimWord word = 0;
  std::memcpy(static_cast<void*>(&word), word_bytes.data(), word_bytes.size());
  EXPECT_EQ(word.load(), 7u);
}

}  // namespace
}  // namespace tensorferry::engine
