#include "tensorferry/arena/lease_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensorferry/base/error.h"

namespace tensorferry::arena {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = Effect::Kind;

constexpr uint64_t kArena = uint64_t{1} << 20;
constexpr Instant kStart = Instant(std::chrono::hours(1));
constexpr wire::Token kToken = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

auto Is(Kind kind, uint64_t id) {
  return AllOf(Field("kind", &Effect::kind, kind), Field("id", &Effect::id, id));
}
auto IsEnd(uint64_t id, EndCause cause) {
  return AllOf(Is(Kind::kEnded, id), Field("cause", &Effect::cause, cause));
}

MATCHER_P(FailsWith, reason, "") { return ReasonOf(arg) == reason; }

class LeaseBookTest : public testing::Test {
 protected:
  explicit LeaseBookTest(const LeaseBookOptions& options = {.arena_bytes = kArena,
                                                            .max_leases = 8,
                                                            .rest = seconds(90),
                                                            .tombstone_ttl = seconds(210)})
      : book_(options) {}

  LeaseBlock Stage(uint64_t nbytes) {
    absl::StatusOr<LeaseBlock> block = book_.Stage(nbytes);
    EXPECT_TRUE(block.ok()) << block.status();
    return block.ok() ? *block : LeaseBlock{};
  }

  wire::LeaseRef Publish(PublishTerms terms, uint64_t nbytes = 1000) {
    terms.token = kToken;
    const LeaseBlock block = Stage(nbytes);
    absl::StatusOr<uint64_t> generation = book_.Publish(block.id, terms, now_);
    EXPECT_TRUE(generation.ok()) << generation.status();
    return {.id = block.id, .generation = generation.value_or(0), .token = kToken};
  }

  // What an exporter does whose engines let go at once.
  Effects Retire() {
    Effects all;
    for (Effects effects = book_.TakeEffects(); !effects.empty(); effects = book_.TakeEffects()) {
      for (const Effect& e : effects) {
        all.push_back(e);
        if (e.kind == Kind::kEnded) book_.Retired(e.id);
      }
    }
    return all;
  }

  void ExpectEmpty() {
    const LeaseBookStats stats = book_.stats();
    EXPECT_EQ(stats.free_bytes, kArena);
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.resting_bytes, 0u);
    EXPECT_EQ(stats.writing + stats.published + stats.ended + stats.resting, 0u);
  }

  LeaseBook book_;
  Instant now_ = kStart;
};

// ---- Stage ----

TEST_F(LeaseBookTest, AlignsPayloadsAndKeepsRoomForTheStamps) {
  uint64_t end = 0;
  for (const uint64_t nbytes : {0, 1, 55, 56, 63, 64, 65, 1000}) {
    const LeaseBlock block = Stage(nbytes);
    EXPECT_EQ(block.payload_offset % 64, 0u);
    EXPECT_GE(block.payload_offset - 8, end);
    end = block.payload_offset + nbytes + 8;
  }
  EXPECT_LE(end, kArena);
}

TEST(LeaseBookOverheadTest, IsAtMostFivePercentAndFourKiB) {
  for (const uint64_t nbytes : {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{64}, uint64_t{65},
                                uint64_t{4096}, uint64_t{64} << 10, uint64_t{100} << 20}) {
    LeaseBook book({.arena_bytes = uint64_t{1} << 30, .max_leases = 1});
    ASSERT_TRUE(book.Stage(nbytes).ok());
    EXPECT_GE(book.stats().used_bytes, nbytes + 16);
    EXPECT_LE(book.stats().used_bytes, nbytes + nbytes / 20 + 4096) << nbytes;
  }
}

TEST_F(LeaseBookTest, SaysHowFullTheArenaIs) {
  const LeaseBlock block = Stage(kArena / 2);
  const absl::Status full = book_.Stage(kArena / 2).status();
  EXPECT_THAT(full, FailsWith(Reason::kArenaFull));
  EXPECT_THAT(std::string(full.message()), AllOf(HasSubstr("524288 bytes"), HasSubstr("of 1048576"),
                                                 HasSubstr("524160"), HasSubstr("arena_bytes")));
  book_.Drop(block.id);
  EXPECT_TRUE(book_.Stage(kArena / 2).ok());
}

TEST_F(LeaseBookTest, SurvivesSizesNearTheEndOfTheNumbers) {
  for (const uint64_t below : {0, 1, 7, 8, 63, 64, 71, 72, 127, 128, 200}) {
    EXPECT_THAT(book_.Stage(UINT64_MAX - below).status(), FailsWith(Reason::kArenaFull));
  }
  ExpectEmpty();
}

TEST_F(LeaseBookTest, SaysWhenTheTableIsFull) {
  for (int i = 0; i < 8; ++i) Stage(1);
  const absl::Status full = book_.Stage(1).status();
  EXPECT_THAT(full, FailsWith(Reason::kArenaFull));
  EXPECT_THAT(std::string(full.message()), AllOf(HasSubstr("all 8"), HasSubstr("max_leases")));
}

TEST_F(LeaseBookTest, DroppedWhileWritingIsFreeAtOnce) {
  const LeaseBlock block = Stage(1000);
  EXPECT_EQ(book_.stats().writing, 1u);
  book_.Drop(block.id);
  const Effects effects = book_.TakeEffects();
  ASSERT_THAT(effects, ElementsAre(Is(Kind::kFreed, block.id)));
  EXPECT_EQ(effects[0].generation, 0u);
  ExpectEmpty();
}

// ---- Publish ----

TEST_F(LeaseBookTest, GenerationsNeverRepeatAndSkipZero) {
  LeaseBook book({.arena_bytes = kArena, .max_leases = 1, .first_generation = UINT64_MAX});
  std::vector<uint64_t> generations;
  for (int i = 0; i < 3; ++i) {
    const uint64_t id = book.Stage(1)->id;
    generations.push_back(*book.Publish(id, {}, now_));
    book.Drop(id);
    book.Retired(id);
  }
  EXPECT_THAT(generations, ElementsAre(UINT64_MAX, 1, 2));
}

TEST_F(LeaseBookTest, RefusesAKeyThatIsLive) {
  const wire::LeaseRef first = Publish({.key = 7});
  const LeaseBlock second = Stage(10);
  const absl::Status refused = book_.Publish(second.id, {.key = 7}, now_).status();
  EXPECT_THAT(refused, FailsWith(Reason::kDuplicateKey));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("key 7"));
  EXPECT_EQ(book_.stats().writing, 1u);

  book_.Drop(first.id);
  EXPECT_TRUE(book_.Publish(second.id, {.key = 7}, now_).ok());
}

// ---- Open ----

TEST_F(LeaseBookTest, OpensTheRangeAskedFor) {
  const LeaseBlock block = Stage(1000);
  const uint64_t generation = *book_.Publish(block.id, {.token = kToken}, now_);
  const wire::LeaseRef ref = {.id = block.id, .generation = generation, .token = kToken};
  const absl::StatusOr<LeaseBlock> range = book_.Open(ref, 100, 900);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(range->id, block.id);
  EXPECT_EQ(range->payload_offset, block.payload_offset + 100);
  EXPECT_EQ(range->nbytes, 900u);
  EXPECT_TRUE(book_.Open(ref, 1000, 0).ok());
}

TEST_F(LeaseBookTest, RefusesRangesBeyondTheLease) {
  const wire::LeaseRef ref = Publish({}, 1000);
  EXPECT_THAT(book_.Open(ref, 0, 1001).status(), FailsWith(Reason::kOutOfRange));
  EXPECT_THAT(book_.Open(ref, 1001, 0).status(), FailsWith(Reason::kOutOfRange));
  EXPECT_THAT(book_.Open(ref, 999, 2).status(), FailsWith(Reason::kOutOfRange));
  EXPECT_THAT(book_.Open(ref, UINT64_MAX, 2).status(), FailsWith(Reason::kOutOfRange));
  EXPECT_THAT(book_.Open(ref, 2, UINT64_MAX).status(), FailsWith(Reason::kOutOfRange));
  book_.Drop(ref.id);
  Retire();
  ExpectEmpty();  // a refused Open pins nothing
}

TEST_F(LeaseBookTest, RefusesEveryWrongTokenByte) {
  const wire::LeaseRef ref = Publish({.readers = 1});
  for (size_t i = 0; i < kToken.size(); ++i) {
    wire::LeaseRef wrong = ref;
    wrong.token[i] ^= 0x80;
    EXPECT_THAT(book_.Open(wrong, 0, 1).status(), FailsWith(Reason::kBadToken));
    EXPECT_THAT(book_.Done(wrong), FailsWith(Reason::kBadToken));
  }
  EXPECT_EQ(book_.stats().published, 1u);
}

TEST_F(LeaseBookTest, RefusesWhatIsNotThere) {
  const wire::LeaseRef ref = Publish({});
  const LeaseBlock writing = Stage(10);
  for (const wire::LeaseRef& wrong : std::vector<wire::LeaseRef>{
           {.id = ref.id, .generation = ref.generation + 1, .token = kToken},
           {.id = ref.id, .generation = 0, .token = kToken},
           {.id = writing.id, .generation = 0, .token = {}},
           {.id = 7, .generation = 0, .token = {}},
           {.id = 8, .generation = ref.generation, .token = kToken},
           {.id = UINT64_MAX, .generation = ref.generation, .token = kToken}}) {
    EXPECT_THAT(book_.Open(wrong, 0, 0).status(), FailsWith(Reason::kLeaseEnded));
    EXPECT_THAT(book_.Done(wrong), FailsWith(Reason::kLeaseEnded));
  }
}

TEST_F(LeaseBookTest, AReaderKeepsTheBytesOfAnEndedLease) {
  const wire::LeaseRef ref = Publish({});
  ASSERT_TRUE(book_.Open(ref, 0, 10).ok());
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kDropped)));
  EXPECT_THAT(book_.Open(ref, 0, 10).status(), FailsWith(Reason::kLeaseEnded));
  EXPECT_EQ(book_.stats().ended, 1u);
  book_.Unpin(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(Is(Kind::kFreed, ref.id)));
  ExpectEmpty();
}

TEST_F(LeaseBookTest, TheEnginesKeepTheBytesUntilRetired) {
  const wire::LeaseRef ref = Publish({});
  book_.Drop(ref.id);
  EXPECT_THAT(book_.TakeEffects(), ElementsAre(IsEnd(ref.id, EndCause::kDropped)));
  for (int i = 0; i < 7; ++i) EXPECT_NE(Stage(1).id, ref.id);
  EXPECT_FALSE(book_.Stage(1).ok());
  book_.Retired(ref.id);
  EXPECT_EQ(Stage(1).id, ref.id);
}

// ---- Ends ----

TEST_F(LeaseBookTest, TheLastReaderEndsIt) {
  const wire::LeaseRef ref = Publish({.key = 5, .readers = 2});
  EXPECT_TRUE(book_.Done(ref).ok());
  EXPECT_THAT(book_.TakeEffects(), IsEmpty());
  EXPECT_TRUE(book_.DoneByKey(5).ok());
  const Effects effects = Retire();
  ASSERT_THAT(effects, ElementsAre(IsEnd(ref.id, EndCause::kReleased)));
  EXPECT_EQ(effects[0].key, 5);
  EXPECT_EQ(effects[0].generation, ref.generation);
  EXPECT_EQ(effects[0].nbytes, 1000u);
  EXPECT_THAT(book_.Done(ref), FailsWith(Reason::kLeaseEnded));
  EXPECT_THAT(book_.DoneByKey(5), FailsWith(Reason::kLeaseEnded));
  // The owner still has it.
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(Is(Kind::kFreed, ref.id)));
  ExpectEmpty();
}

TEST_F(LeaseBookTest, WithoutCountedReadersDoneEndsNothing) {
  const wire::LeaseRef ref = Publish({.key = 5, .readers = 0});
  EXPECT_TRUE(book_.Done(ref).ok());
  EXPECT_TRUE(book_.DoneByKey(5).ok());
  EXPECT_EQ(book_.stats().published, 1u);
}

TEST_F(LeaseBookTest, DetachedItEndsWithItsReaders) {
  const wire::LeaseRef ref = Publish({.readers = 1});
  book_.Detach(ref.id);
  EXPECT_THAT(Retire(), IsEmpty());
  EXPECT_TRUE(book_.Done(ref).ok());
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kReleased), Is(Kind::kFreed, ref.id)));
  ExpectEmpty();
}

TEST_F(LeaseBookTest, DetachedAfterItsEndItIsFreed) {
  const wire::LeaseRef ref = Publish({.readers = 1});
  EXPECT_TRUE(book_.Done(ref).ok());
  Retire();
  book_.Detach(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(Is(Kind::kFreed, ref.id)));
}

TEST_F(LeaseBookTest, CancelEndsByKey) {
  const wire::LeaseRef ref = Publish({.key = -3, .readers = 1});
  EXPECT_THAT(book_.Cancel(3), FailsWith(Reason::kLeaseEnded));
  EXPECT_TRUE(book_.Cancel(-3).ok());
  EXPECT_THAT(book_.Cancel(-3), FailsWith(Reason::kLeaseEnded));
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kCancelled)));
  EXPECT_EQ(book_.stats().ended, 1u);  // its owner still has it
}

TEST_F(LeaseBookTest, ExpiresInOrderOfTime) {
  const wire::LeaseRef late = Publish({.expires = kStart + seconds(20)});
  const wire::LeaseRef never = Publish({});
  const wire::LeaseRef soon = Publish({.expires = kStart + seconds(10)});
  EXPECT_EQ(book_.NextDeadline(), kStart + seconds(10));
  book_.Advance(kStart + seconds(10) - Duration(1));
  EXPECT_THAT(book_.TakeEffects(), IsEmpty());
  book_.Advance(kStart + seconds(30));
  EXPECT_THAT(Retire(),
              ElementsAre(IsEnd(soon.id, EndCause::kExpired), IsEnd(late.id, EndCause::kExpired)));
  EXPECT_EQ(book_.NextDeadline(), kNever);
  EXPECT_TRUE(book_.Open(never, 0, 1).ok());
}

TEST_F(LeaseBookTest, AnEndedLeaseDoesNotExpire) {
  const wire::LeaseRef ref = Publish({.expires = kStart + seconds(10)});
  book_.Drop(ref.id);
  EXPECT_EQ(book_.NextDeadline(), kNever);
  Retire();
  book_.Advance(kStart + seconds(20));
  EXPECT_THAT(book_.TakeEffects(), IsEmpty());
}

TEST_F(LeaseBookTest, AStaleRefNeverReachesTheNextLeaseOfItsId) {
  const wire::LeaseRef old = Publish({.readers = 1});
  book_.Drop(old.id);
  Retire();
  const wire::LeaseRef next = Publish({.readers = 1});
  ASSERT_EQ(next.id, old.id);
  EXPECT_THAT(book_.Done(old), FailsWith(Reason::kLeaseEnded));
  EXPECT_THAT(book_.Open(old, 0, 1).status(), FailsWith(Reason::kLeaseEnded));
  EXPECT_EQ(book_.stats().published, 1u);
}

// ---- Rest ----

TEST_F(LeaseBookTest, RestsWhenAOneSidedReaderMayStillBeAtIt) {
  const wire::LeaseRef ref = Publish({.readers = 1, .one_sided = true});
  book_.Drop(ref.id);
  now_ += seconds(5);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kDropped), Is(Kind::kPoison, ref.id)));
  const LeaseBookStats resting = book_.stats();
  EXPECT_EQ(resting.resting, 1u);
  EXPECT_EQ(resting.ended, 0u);
  EXPECT_GE(resting.resting_bytes, 1016u);
  EXPECT_EQ(resting.free_bytes + resting.resting_bytes, kArena);

  EXPECT_LE(book_.NextDeadline(), now_);  // not dated yet: at once
  book_.Advance(now_);
  EXPECT_EQ(book_.NextDeadline(), now_ + seconds(90));
  book_.Advance(now_ + seconds(90) - Duration(1));
  EXPECT_THAT(book_.TakeEffects(), IsEmpty());
  book_.Advance(now_ + seconds(90));
  EXPECT_THAT(book_.TakeEffects(), ElementsAre(Is(Kind::kFreed, ref.id)));
  ExpectEmpty();
}

TEST_F(LeaseBookTest, DoesNotRestWhenAllOneSidedReadersAreDone) {
  const wire::LeaseRef ref = Publish({.key = 1, .readers = 2, .one_sided = true});
  EXPECT_TRUE(book_.DoneByKey(1).ok());
  EXPECT_TRUE(book_.DoneByKey(1).ok());
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kReleased), Is(Kind::kFreed, ref.id)));
}

TEST_F(LeaseBookTest, RestsWhenNobodyCountedTheOneSidedReaders) {
  const wire::LeaseRef ref = Publish({.readers = 0, .one_sided = true});
  EXPECT_TRUE(book_.Done(ref).ok());
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kDropped), Is(Kind::kPoison, ref.id)));
}

TEST_F(LeaseBookTest, RestsOnceItWasGivenToAOneSidedReader) {
  const wire::LeaseRef kept = Publish({.readers = 1});
  const wire::LeaseRef given = Publish({.readers = 1});
  EXPECT_TRUE(book_.GiveOneSided(given).ok());
  EXPECT_TRUE(book_.GiveOneSided(given).ok());
  for (const wire::LeaseRef& ref : {kept, given}) book_.Drop(ref.id);
  EXPECT_THAT(Retire(),
              ElementsAre(IsEnd(kept.id, EndCause::kDropped), IsEnd(given.id, EndCause::kDropped),
                          Is(Kind::kFreed, kept.id), Is(Kind::kPoison, given.id)));
  EXPECT_THAT(book_.GiveOneSided(given), FailsWith(Reason::kLeaseEnded));
}

TEST_F(LeaseBookTest, RestsOnceAReaderWasToldWhereItLies) {
  const LeaseBlock block = Stage(1000);
  const auto generation = book_.Publish(block.id, {.key = 5, .readers = 0}, now_);
  const wire::LeaseRef ref = {.id = block.id, .generation = *generation, .token = {}};
  const auto located = book_.Locate(ref, 100, 50);
  ASSERT_TRUE(located.ok()) << located.status();
  EXPECT_EQ(located->payload_offset, block.payload_offset) << "of the whole payload";
  EXPECT_EQ(located->nbytes, 1000u);
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kDropped), Is(Kind::kPoison, ref.id)));
  EXPECT_THAT(book_.Locate(ref, 0, 1).status(), FailsWith(Reason::kLeaseEnded));
  // Such readers notify by the lease itself: there is no tombstone for its key.
  Publish({.key = 5, .readers = 1});
  EXPECT_TRUE(book_.DoneByKey(5).ok());
}

TEST_F(LeaseBookTest, DoesNotRestWhenAllWhoWereToldAreDone) {
  const wire::LeaseRef ref = Publish({.readers = 1});
  EXPECT_TRUE(book_.Locate(ref, 0, 1).ok());
  EXPECT_TRUE(book_.Done(ref).ok());
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kReleased), Is(Kind::kFreed, ref.id)));
  const wire::LeaseRef known = Publish({});
  EXPECT_TRUE(book_.Locate(known, 0, 1).ok());
  book_.ReadersAreDone(known.id);
  book_.Drop(known.id);
  EXPECT_THAT(Retire(),
              ElementsAre(IsEnd(known.id, EndCause::kDropped), Is(Kind::kFreed, known.id)));
}

TEST_F(LeaseBookTest, NobodyIsToldWhereItLiesWithoutTheRightToReadIt) {
  const wire::LeaseRef ref = Publish({});
  wire::LeaseRef forged = ref;
  forged.token[0] ^= 1;
  EXPECT_THAT(book_.Locate(forged, 0, 1).status(), FailsWith(Reason::kBadToken));
  forged = ref;
  ++forged.generation;
  EXPECT_THAT(book_.Locate(forged, 0, 1).status(), FailsWith(Reason::kLeaseEnded));
  EXPECT_THAT(book_.Locate(ref, 1, UINT64_MAX).status(), FailsWith(Reason::kOutOfRange));
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kDropped), Is(Kind::kFreed, ref.id)));
}

TEST_F(LeaseBookTest, DoesNotRestWhenItsOwnerKnowsThatReadersAreDone) {
  const wire::LeaseRef ref = Publish({.key = 1, .readers = 1, .one_sided = true});
  book_.ReadersAreDone(ref.id);
  book_.Drop(ref.id);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kDropped), Is(Kind::kFreed, ref.id)));
  // What they send may still be on its way.
  Publish({.key = 1, .readers = 1});
  EXPECT_THAT(book_.DoneByKey(1), FailsWith(Reason::kLeaseEnded));
  EXPECT_TRUE(book_.DoneByKey(1).ok());
}

TEST_F(LeaseBookTest, TheRestBeginsWithTheLastPin) {
  const wire::LeaseRef ref = Publish({.readers = 1, .one_sided = true, .expires = kStart});
  book_.Advance(kStart);
  EXPECT_THAT(Retire(), ElementsAre(IsEnd(ref.id, EndCause::kExpired)));
  book_.Advance(kStart + seconds(1000));
  EXPECT_THAT(book_.TakeEffects(), IsEmpty());
  book_.Drop(ref.id);
  EXPECT_THAT(book_.TakeEffects(), ElementsAre(Is(Kind::kPoison, ref.id)));
  EXPECT_EQ(book_.NextDeadline(), kStart + seconds(1000));
  book_.Advance(kStart + seconds(1001));
  EXPECT_EQ(book_.NextDeadline(), kStart + seconds(1091));
}

TEST_F(LeaseBookTest, TimeDoesNotRunBackwards) {
  const wire::LeaseRef ref = Publish({.readers = 1, .one_sided = true});
  book_.Advance(kStart + seconds(50));
  book_.Drop(ref.id);
  Retire();
  book_.Advance(kStart);
  EXPECT_EQ(book_.NextDeadline(), kStart + seconds(140));
}

// ---- Tombstones ----

TEST_F(LeaseBookTest, ALateNotificationHitsTheTombstone) {
  const wire::LeaseRef old = Publish({.key = 9, .readers = 2});
  EXPECT_TRUE(book_.DoneByKey(9).ok());
  book_.Drop(old.id);
  const wire::LeaseRef next = Publish({.key = 9, .readers = 1});
  Retire();
  EXPECT_THAT(book_.DoneByKey(9), FailsWith(Reason::kLeaseEnded));
  EXPECT_TRUE(book_.Open(next, 0, 1).ok());
  EXPECT_TRUE(book_.DoneByKey(9).ok());
  EXPECT_THAT(book_.Open(next, 0, 1).status(), FailsWith(Reason::kLeaseEnded));
}

TEST_F(LeaseBookTest, AnUncountedOneSidedReaderLeavesATombstoneToo) {
  const wire::LeaseRef silent = Publish({.key = 1, .one_sided = true});
  const wire::LeaseRef heard = Publish({.key = 2, .one_sided = true});
  const wire::LeaseRef asked = Publish({.key = 3});
  EXPECT_TRUE(book_.DoneByKey(2).ok());
  for (const wire::LeaseRef& ref : {silent, heard, asked}) book_.Drop(ref.id);
  for (const int64_t key : {1, 2, 3}) Publish({.key = key, .readers = 1});
  EXPECT_THAT(book_.DoneByKey(1), FailsWith(Reason::kLeaseEnded));
  EXPECT_TRUE(book_.DoneByKey(2).ok());
  EXPECT_TRUE(book_.DoneByKey(3).ok());
}

TEST_F(LeaseBookTest, TombstonesLastForTheirTime) {
  book_.Drop(Publish({.key = 9, .readers = 1}).id);
  book_.Advance(kStart);
  now_ = kStart + seconds(210) - Duration(1);
  const wire::LeaseRef second = Publish({.key = 9, .readers = 1});
  EXPECT_THAT(book_.DoneByKey(9), FailsWith(Reason::kLeaseEnded));
  book_.Drop(second.id);
  book_.Advance(now_);
  now_ += seconds(210);
  Publish({.key = 9, .readers = 1});
  EXPECT_TRUE(book_.DoneByKey(9).ok());
}

// ---- Programming errors: an assert in debug builds, otherwise nothing happens ----

TEST_F(LeaseBookTest, RetiredTwice) {
  const wire::LeaseRef ref = Publish({.key = 1, .readers = 1});
  EXPECT_TRUE(book_.Cancel(1).ok());
  Retire();
  EXPECT_DEBUG_DEATH(book_.Retired(ref.id), "");
  EXPECT_EQ(book_.stats().ended, 1u);
}

TEST_F(LeaseBookTest, RetiredWhileReadable) {
  const wire::LeaseRef ref = Publish({});
  EXPECT_DEBUG_DEATH(book_.Retired(ref.id), "");
  EXPECT_TRUE(book_.Open(ref, 0, 1).ok());
}

TEST_F(LeaseBookTest, DroppedTwice) {
  const wire::LeaseRef ref = Publish({});
  book_.Drop(ref.id);
  EXPECT_DEBUG_DEATH(book_.Drop(ref.id), "");
  EXPECT_EQ(book_.stats().ended, 1u);  // the engines still have it
}

TEST_F(LeaseBookTest, DetachedWhileWriting) {
  const LeaseBlock block = Stage(10);
  EXPECT_DEBUG_DEATH(book_.Detach(block.id), "");
  EXPECT_EQ(book_.stats().writing, 1u);
}

TEST_F(LeaseBookTest, UnpinnedMoreThanOpened) {
  const wire::LeaseRef ref = Publish({});
  EXPECT_DEBUG_DEATH(book_.Unpin(ref.id), "");
  EXPECT_TRUE(book_.Open(ref, 0, 1).ok());
}

TEST_F(LeaseBookTest, PublishedTwice) {
  const wire::LeaseRef ref = Publish({});
  EXPECT_DEBUG_DEATH(
      EXPECT_THAT(book_.Publish(ref.id, {}, now_).status(), FailsWith(Reason::kLeaseEnded)), "");
  EXPECT_TRUE(book_.Open(ref, 0, 1).ok());
}

TEST_F(LeaseBookTest, CallsOnWhatIsNotHeld) {
  for (const uint64_t id : {uint64_t{3}, uint64_t{8}, UINT64_MAX}) {
    EXPECT_DEBUG_DEATH(book_.Drop(id), "");
    EXPECT_DEBUG_DEATH(book_.Retired(id), "");
    EXPECT_DEBUG_DEATH(book_.Unpin(id), "");
    EXPECT_DEBUG_DEATH(EXPECT_FALSE(book_.Publish(id, {}, now_).ok()), "");
  }
  ExpectEmpty();
}

}  // namespace
}  // namespace tensorferry::arena
