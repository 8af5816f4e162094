#include "tools/export_session.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensorferry/base/text.h"
#include "tensorferry/wire/descriptor.h"
#include "tools/hex.h"
#include "tools/input/input_testing.h"

namespace tensorferry::tools {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

class ExportSessionTest : public testing::Test {
 protected:
  ExportSessionTest() {
    ExporterOptions options;
    options.arena_bytes = 1 << 20;
    options.prefault = false;
    options.listen = "127.0.0.1:0";
    options.on_event = [this](const LeaseEvent& event) {
      const std::lock_guard<std::mutex> lock(mu_);
      events_.push_back(event);
    };
    auto exporter = Exporter::Create(std::move(options));
    EXPECT_TRUE(exporter.ok()) << exporter.status();
    exporter_ = *std::move(exporter);
    session_ = std::make_unique<ExportSession>(exporter_.get(), 1, /*smg=*/false,
                                               [this](const Json& answer) { answer_ = answer; });
  }

  Json Ask(std::string_view line) {
    answer_ = nullptr;
    session_->Line(line);
    std::vector<LeaseEvent> events;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      events.swap(events_);
    }
    for (const LeaseEvent& event : events) session_->Event(event);
    return answer_;
  }

  const TempDir dir_;
  Json answer_;
  std::mutex mu_;
  std::vector<LeaseEvent> events_;
  std::unique_ptr<Exporter> exporter_;
  std::unique_ptr<ExportSession> session_;
};

TEST_F(ExportSessionTest, ExportsAFileUnderItsKey) {
  const std::string file = dir_.Write("a file with  blanks", "seven b");
  const Json answer = Ask(StrCat("-7 ", file));
  EXPECT_EQ(answer["event"], "exported");
  EXPECT_EQ(answer["key"], -7);
  EXPECT_EQ(answer["nbytes"], 7);
  EXPECT_EQ(answer["transport"], "tensorferry");
  const std::string bytes = *FromHex(answer["descriptor"].get<std::string>());
  const auto descriptor = wire::DecodeDescriptor(AsSpan(bytes));
  ASSERT_TRUE(descriptor.ok()) << descriptor.status();
  EXPECT_EQ(descriptor->key, -7);
  EXPECT_EQ(descriptor->nbytes, 7u);
  EXPECT_TRUE(descriptor->wants_done);
  EXPECT_EQ(session_->outstanding(), 1u);
}

TEST_F(ExportSessionTest, CancelEndsALease) {
  const std::string file = dir_.Write("f", "x");
  Ask(StrCat("5 ", file));
  EXPECT_EQ(Ask("cancel 5"), Json({{"event", "cancelled"}, {"key", 5}}));
  EXPECT_EQ(session_->outstanding(), 0u);
  const Json again = Ask("cancel 5");
  EXPECT_EQ(again["event"], "refused");
  EXPECT_EQ(again["key"], 5);
}

TEST_F(ExportSessionTest, RefusesWithTheReasonAndKeepsTheRest) {
  const std::string file = dir_.Write("f", "x");
  const std::string large = dir_.Write("large", std::string(2 << 20, 'x'));
  Ask(StrCat("1 ", file));
  const std::pair<std::string, std::string> cases[] = {
      {StrCat("1 ", file), "(duplicate_key)"},
      {StrCat("2 ", large), "(arena_full)"},
      {StrCat("3 ", dir_ / "none"), "none: No such file or directory"},
      {StrCat("4 ", dir_ / ""), "not a regular file"},
  };
  for (const auto& [line, reason] : cases) {
    const Json answer = Ask(line);
    EXPECT_EQ(answer["event"], "refused") << line;
    EXPECT_TRUE(answer["key"].is_number()) << line;
    EXPECT_THAT(answer["reason"].get<std::string>(), HasSubstr(reason));
  }
  EXPECT_EQ(session_->outstanding(), 1u);
}

TEST_F(ExportSessionTest, LinesThatMakeNoSense) {
  for (const std::string_view line :
       {"", " ", "1", "1 ", "x y", "cancel", "cancel ", "cancel x", "cancel 1 2",
        "9223372036854775808 f", "-9223372036854775809 f", "1.5 f", "0x10 f", "+1 f"}) {
    const Json answer = Ask(line);
    EXPECT_EQ(answer["event"], "refused") << line;
    EXPECT_THAT(answer["reason"].get<std::string>(), HasSubstr("neither KEY FILE nor")) << line;
  }
  EXPECT_EQ(session_->outstanding(), 0u);
}

}  // namespace
}  // namespace tensorferry::tools
