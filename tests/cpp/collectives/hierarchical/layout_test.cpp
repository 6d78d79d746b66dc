// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/hierarchical/layout.h"

#include <gtest/gtest.h>

namespace altorch::hierarchical {
namespace {

using Ranks = std::vector<int>;

TEST(Layout, KnowsWhoIsWhere) {
  const Layout even({0, 0, 1, 1}, 3);
  EXPECT_EQ(even.nodes(), 2);
  EXPECT_EQ(even.neighbours(), (Ranks{2, 3}));
  EXPECT_EQ(even.own_place(), 1);
  EXPECT_TRUE(even.is_contiguous() && even.pays());
  EXPECT_EQ(even.rails(), 2);
  EXPECT_EQ(even.rail(1), (Ranks{1, 3}));
  EXPECT_EQ(even.leaders(), (Ranks{0, 2}));
  EXPECT_EQ(even.leaders(3), (Ranks{1, 3}));  // the rail of rank 3

  const Layout in_turns({0, 1, 0, 1}, 2);
  EXPECT_EQ(in_turns.rails(), 2);
  EXPECT_FALSE(in_turns.is_contiguous());
  EXPECT_EQ(in_turns.rail(1), (Ranks{2, 3}));

  const Layout uneven({0, 1, 1, 2, 2, 2}, 0);
  EXPECT_EQ(uneven.rails(), 1);
  EXPECT_TRUE(uneven.is_contiguous());
  EXPECT_EQ(uneven.neighbours(), Ranks{0});
  EXPECT_EQ(uneven.leaders(2), (Ranks{0, 2, 3}));  // which is on none
}

TEST(Layout, HasTheLeadersThatItIsGiven) {
  const Layout uneven({0, 0, 1, 1, 1}, 0, {1, 0});
  EXPECT_EQ(uneven.leaders(), (Ranks{1, 2}));
  EXPECT_EQ(uneven.leaders(2), (Ranks{0, 2}));  // the rail of rank 2
  EXPECT_EQ(uneven.leaders(4), (Ranks{1, 4}));  // which is on none
}

TEST(Layout, PaysOnlyWhereRanksShareANodeAndNotAllDo) {
  EXPECT_FALSE(Layout({0, 0, 0}, 1).pays());
  EXPECT_FALSE(Layout({0, 1, 2}, 1).pays());
  EXPECT_TRUE(Layout({0, 1, 1}, 0).pays());
}

}  // namespace
}  // namespace altorch::hierarchical
