// SPDX-License-Identifier: BSD-3-Clause
#include "health/desync_board.h"

#include <gtest/gtest.h>

#include "support/map_store.h"

namespace altorch {
namespace {

TEST(DesyncBoard, ComparesWhatRanksWaitIn) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 3), second(store, "g", 1, 3);
  EXPECT_FALSE(first.compare({7, 11}).has_value());
  EXPECT_FALSE(first.is_first_waiter({7}));  // another one may have written at the same time
  second.publish_wait({6});
  EXPECT_FALSE(first.compare({7, 11}).has_value());  // late, not wrong
  EXPECT_TRUE(first.is_first_waiter({7}));
  const auto found = first.waiting({7});
  EXPECT_EQ(found.text, "rank 1 waits in #6; ranks not waiting in this group: 2");
  EXPECT_EQ(found.elsewhere, (std::vector<int>{1, 2}));
  EXPECT_FALSE(second.compare({7, 11}).has_value());
  EXPECT_FALSE(second.is_first_waiter({7}));
  const auto finding = second.compare({7, 12});
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->rank, 0);
  EXPECT_EQ(finding->called.fingerprint, 11u);
  EXPECT_FALSE(finding->aborted.has_value());
}

TEST(DesyncBoard, ComparesCallsOnGpusAmongThemselves) {
  const auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 3), second(store, "g", 1, 3), third(store, "g", 2, 3);
  const CallNote on_cpu{.sequence = 7, .fingerprint = 11}, on_gpu{7, 12, 0, true};
  EXPECT_FALSE(first.compare(on_cpu).has_value());
  EXPECT_FALSE(second.compare(on_gpu).has_value());
  EXPECT_FALSE(first.compare(on_cpu).has_value());
  EXPECT_TRUE(first.is_first_waiter(on_cpu));
  EXPECT_FALSE(first.is_first_waiter(on_gpu));
  const auto finding = third.compare({7, 13, 0, true});
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->rank, 1);
  second.publish_refusal({8, 0, 0, true}, "a bad tensor");
  EXPECT_FALSE(first.compare({.sequence = 8}).has_value());
  EXPECT_TRUE(first.compare({8, 0, 0, true}).has_value());
  second.publish_wait({.sequence = 6});
  second.publish_wait(on_gpu);
  const auto waiting = first.waiting(on_cpu);
  EXPECT_EQ(
      waiting.text,
      "rank 1 waits in #7 (CUDA) (CPU and CUDA collectives never match: if it is the same call, move its "
      "tensor); ranks not waiting in this group: 2");
  EXPECT_EQ(waiting.elsewhere, (std::vector<int>{1, 2}));
}

TEST(DesyncBoard, SaysWhereRanksParted) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 2), second(store, "g", 1, 2);
  for (std::uint64_t call = 1; call <= 6; ++call) {
    first.record({call, 5, call});
    second.record({call, call == 4 ? 9u : 5u, call < 5 ? call : call + 100});
  }
  EXPECT_FALSE(first.compare({7, 5, 7}).has_value());
  const auto finding = second.compare({7, 5, 107});
  ASSERT_TRUE(finding.has_value());
  ASSERT_TRUE(finding->first_difference_theirs.has_value());
  EXPECT_EQ(finding->first_difference_theirs->sequence, 4u);
  EXPECT_EQ(finding->first_difference_theirs->fingerprint, 5u);
  EXPECT_EQ(finding->first_difference_mine->fingerprint, 9u);
}

TEST(DesyncBoard, PassesOnWhyARankRefused) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 2), second(store, "g", 1, 2);
  second.publish_refusal({3}, "no such tensor");
  EXPECT_FALSE(second.compare({3, 1}).has_value());  // it knows itself
  const auto finding = first.compare({3, 1});
  ASSERT_TRUE(finding.has_value());
  EXPECT_STREQ(finding->aborted->what(), "rank 1 of the group aborted it: no such tensor");
  EXPECT_FALSE(first.compare({4, 1}).has_value());
}

// On GPUs at 0dff7ae a peer that had asked before read "called what it refused", and not why.
TEST(DesyncBoard, AnAnswerDoesNotHideWhyARankRefused) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 2), second(store, "g", 1, 2);
  const CallNote asked{3, 1, 100};
  EXPECT_FALSE(first.compare(asked).has_value());
  second.record({3, CallNote::kRefused, 7});
  second.answer(asked);
  EXPECT_FALSE(first.compare(asked).has_value());
  second.publish_refusal({3}, "no such tensor");
  second.answer(asked);
  const auto finding = first.compare(asked);
  ASSERT_TRUE(finding.has_value());
  ASSERT_TRUE(finding->aborted.has_value());
  EXPECT_STREQ(finding->aborted->what(), "rank 1 of the group aborted it: no such tensor");
}

TEST(DesyncBoard, PassesOnThatTheGroupIsClosedWhateverTheCall) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 2), second(store, "g", 1, 2);
  second.publish_closed("all_reduce #3", Error(ErrorKind::kTimeout, "not done in time"));
  EXPECT_FALSE(second.closed().has_value());
  for (const auto& finding : {first.closed(), first.compare({9, 1})}) {
    ASSERT_TRUE(finding.has_value());
    EXPECT_EQ(finding->aborted->kind(), ErrorKind::kTimeout);
    EXPECT_STREQ(
        finding->aborted->what(),
        "rank 1 of the group aborted all_reduce #3: not done in time; destroy the group and make a new "
        "one");
  }
}

TEST(DesyncBoard, TellsWhatARankThatHasLeftHadFinished) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 2), second(store, "g", 1, 2);
  EXPECT_FALSE(first.left(1));
  second.publish_left(7);
  EXPECT_EQ(first.left(1), std::optional<std::uint64_t>(7));
  EXPECT_FALSE(second.left(0));
}

TEST(DesyncBoard, TellsWhereTheOtherEndOfAMessageIs) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard first(store, "g", 0, 2), second(store, "g", 1, 2);
  EXPECT_FALSE(first.compare_message(1, /*sends=*/true, 7, /*on_gpu=*/true).has_value());
  EXPECT_FALSE(second.compare_message(0, /*sends=*/true, 7, false).has_value());
  EXPECT_EQ(second.compare_message(0, /*sends=*/false, 7, false), true);
  EXPECT_FALSE(second.compare_message(0, /*sends=*/false, 8, false).has_value());
}

// Notes come from other processes, perhaps of another version.
TEST(DesyncBoard, PassesOverWhatItCannotRead) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard board(store, "g", 0, 2);
  for (const char* text : {"", "1", "x y z", "1 called", "1 called x y", "1 99999999999999999999999 2 3"}) {
    for (const char* key : {"board/closed", "board/answer/cpu/7", "board/first/cpu/7"}) store->set(key, text);
    EXPECT_FALSE(board.compare({7, 11}).has_value()) << text;
  }
}

// The requests of a stalled rank, whatever the size of the group.
TEST(DesyncBoard, AsksAFewKeysHoweverManyRanksThereAre) {
  class Counting : public MapStore {
   public:
    std::optional<std::string> try_get(const std::string& key) override {
      ++requests;
      return MapStore::try_get(key);
    }
    void set(const std::string& key, const std::string& value) override {
      ++requests;
      MapStore::set(key, value);
    }
    int requests = 0;
  };
  for (const int size : {2, 64, 4096}) {
    auto store = std::make_shared<Counting>();
    DesyncBoard board(store, "g", 1, size);
    for (int look = 0; look < 10; ++look) EXPECT_FALSE(board.compare({7, 11}).has_value());
    EXPECT_LE(store->requests, 10 * 4) << size;
  }
}

TEST(DesyncBoard, TakesNothingFromRanksThatCannotBe) {
  auto store = std::make_shared<MapStore>();
  DesyncBoard board(store, "g", 0, 2);
  store->set("board/closed", "-1 3 all_reduce #1: x");
  EXPECT_FALSE(board.closed().has_value());
  store->set("board/closed", "1 99 all_reduce #1: x");
  ASSERT_TRUE(board.closed().has_value());
  EXPECT_TRUE(board.closed()->aborted->kind() == ErrorKind::kInternal);
}

}  // namespace
}  // namespace altorch
