#include "observe/stall_board.h"

#include <gtest/gtest.h>

#include "support/map_store.h"

namespace altorch {
namespace {

TEST(StallBoard, ComparesWhatRanksWaitIn) {
  auto store = std::make_shared<MapStore>();
  StallBoard first(store, "g", 0, 3), second(store, "g", 1, 3);
  EXPECT_FALSE(first.compare(7, 11).has_value());
  second.publish_wait(6, 99);
  EXPECT_FALSE(first.compare(7, 11).has_value());  // late, not wrong
  EXPECT_EQ(first.whereabouts(7), "rank 1 waits in #6; ranks not waiting in this group: 2");
  second.publish_wait(7, 11);
  EXPECT_FALSE(first.compare(7, 11).has_value());
  second.publish_wait(7, 12);
  const auto finding = first.compare(7, 11);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->rank, 1);
  EXPECT_EQ(finding->fingerprint, 12u);
  EXPECT_FALSE(finding->gave_up.has_value());
}

TEST(StallBoard, PassesOnWhyARankGaveUp) {
  auto store = std::make_shared<MapStore>();
  StallBoard first(store, "g", 0, 2), second(store, "g", 1, 2);
  second.publish_failure(3, "no such tensor");
  EXPECT_FALSE(second.compare(3, 1).has_value());  // it knows itself
  const auto finding = first.compare(3, 1);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->gave_up, "no such tensor");
  EXPECT_FALSE(first.compare(4, 1).has_value());
}

}  // namespace
}  // namespace altorch
