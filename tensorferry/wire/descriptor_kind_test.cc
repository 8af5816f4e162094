#include "tensorferry/wire/descriptor_kind.h"

#include <string>

#include "gtest/gtest.h"
#include "tensorferry/wire/bytes.h"
#include "tensorferry/wire/smg_descriptor.h"

namespace tensorferry::wire {
namespace {

DescriptorKind Kind(std::string_view bytes) { return SniffDescriptor(AsBytes(bytes)); }

TEST(DescriptorKindTest, GoesByTheMagicEvenWhenTheRestIsBroken) {
  EXPECT_EQ(Kind("TFERRY"), DescriptorKind::kTensorferry);
  EXPECT_EQ(Kind("TFERRY\x02 of another version"), DescriptorKind::kTensorferry);
  EXPECT_EQ(Kind("SMGRDMA1"), DescriptorKind::kSmg);
  EXPECT_EQ(Kind("SMGRDMA"), DescriptorKind::kSmgUnknown);
  EXPECT_EQ(Kind("SMGRDMA2 and so on"), DescriptorKind::kSmgUnknown);
}

TEST(DescriptorKindTest, LegacyIsWhatCouldBeUsed) {
  SmgDescriptor d = {.slot_addr = 4096, .gen = 1, .key = 42, .port = 18515, .host = "10.0.0.7"};
  EXPECT_EQ(Kind(EncodeSmgDescriptor(d).substr(8)), DescriptorKind::kNone)
      << "its key would be in the middle";
  std::string legacy = EncodeSmgDescriptor(d);
  legacy.erase(24, 8).erase(0, 8);
  EXPECT_EQ(Kind(legacy), DescriptorKind::kLegacy);
  legacy.resize(18);
  EXPECT_EQ(Kind(legacy), DescriptorKind::kNone) << "without a host";
}

TEST(DescriptorKindTest, AnythingElseIsNone) {
  for (const std::string& text :
       {std::string(), std::string("T"), std::string("TFERR"), std::string("tferry"),
        std::string("smgrdma1"), std::string(200, '\0'), std::string(200, '\xff')}) {
    EXPECT_EQ(Kind(text), DescriptorKind::kNone) << text;
  }
}

}  // namespace
}  // namespace tensorferry::wire
