#include "tensorferry/wire/nixl_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tensorferry/base/error.h"
#include "tensorferry/base/text.h"

namespace tensorferry::wire {
namespace {

using testing::HasSubstr;

// The beginning of what a stock agent answers.
std::string Metadata(std::string_view name) {
  std::string out = "nixlSerDes|Agent";
  out.push_back(static_cast<char>(name.size()));
  out.append(7, '\0');
  return out.append(name).append("|Conns").append(8, '\1').append("|rest");
}

TEST(NixlMessagesTest, GoldenBytes) {
  EXPECT_EQ(EncodeNixlMessage(kNixlFetch), std::string("\x0d\0\0\0\0\0\0\0NIXLCOMM:SEND", 21));
  EXPECT_EQ(EncodeNixlMetadata("ab"), std::string("\x0f\0\0\0\0\0\0\0NIXLCOMM:LOADab", 23));
}

RC_GTEST_PROP(NixlMessagesProperty, MessagesLeadBackHoweverTheyAreCut,
              (const std::vector<std::string>& bodies, const std::vector<uint8_t>& cuts)) {
  std::string stream;
  for (const std::string& body : bodies) stream += EncodeNixlMessage(body);
  NixlMessageReader reader;
  std::vector<std::string> got;
  size_t at = 0;
  for (size_t i = 0; at < stream.size(); ++i) {
    const size_t n =
        std::min<size_t>(stream.size() - at, cuts.empty() ? 1 : cuts[i % cuts.size()] + 1);
    reader.Append(std::string_view(stream).substr(at, n));
    at += n;
    while (true) {
      const auto message = reader.Next();
      RC_ASSERT(message.ok());
      if (!message->has_value()) break;
      got.push_back(**message);
    }
  }
  RC_ASSERT(got == bodies);
  RC_ASSERT(reader.buffered() == 0U);
}

TEST(NixlMessagesTest, ALengthThatCannotBeIsRefusedBeforeItsBytesCome) {
  NixlMessageReader reader;
  reader.Append(std::string(8, '\xff'));
  const auto message = reader.Next();
  EXPECT_EQ(ReasonOf(message.status()), Reason::kProtocol);
  EXPECT_THAT(std::string(message.status().message()), HasSubstr("18446744073709551615"));
}

TEST(NixlMessagesTest, OnlyMetadataAreMetadata) {
  EXPECT_EQ(*MetadataOf("NIXLCOMM:LOADxyz"), "xyz");
  EXPECT_EQ(ReasonOf(MetadataOf("NIXLCOMM:INVL").status()), Reason::kProtocol);
  EXPECT_EQ(ReasonOf(MetadataOf("").status()), Reason::kProtocol);
}

TEST(NixlMessagesTest, AnAgentGetsAnotherNameAndKeepsTheRest) {
  const std::string metadata = Metadata("smg-gateway-encode");
  EXPECT_EQ(*NixlAgentName(metadata), "smg-gateway-encode");
  const auto renamed = RenameNixlAgent(metadata, "smg-gateway-encode@10.0.0.7:18515#1");
  ASSERT_TRUE(renamed.ok()) << renamed.status();
  EXPECT_EQ(*NixlAgentName(*renamed), "smg-gateway-encode@10.0.0.7:18515#1");
  EXPECT_EQ(*RenameNixlAgent(*renamed, "smg-gateway-encode"), metadata);
}

TEST(NixlMessagesTest, OtherFormsAreAnUnknownVersion) {
  const std::string good = Metadata("name");
  for (size_t n = 0; n < 16 + 8 + 4 + 1; ++n) {
    EXPECT_EQ(ReasonOf(NixlAgentName(good.substr(0, n)).status()), Reason::kUnknownVersion) << n;
  }
  std::string other = good;
  other[0] = 'N';
  EXPECT_EQ(ReasonOf(NixlAgentName(other).status()), Reason::kUnknownVersion);
  std::string longer = good;
  longer[16 + 7] = '\x7f';
  EXPECT_EQ(ReasonOf(RenameNixlAgent(longer, "x").status()), Reason::kUnknownVersion);
  EXPECT_EQ(ReasonOf(NixlAgentName(Metadata("")).status()), Reason::kUnknownVersion);
}

}  // namespace
}  // namespace tensorferry::wire
