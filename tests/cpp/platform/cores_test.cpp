// SPDX-License-Identifier: BSD-3-Clause
#include "platform/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <vector>

namespace altorch {
namespace {

std::optional<int> count(const std::vector<std::string>& lists) { return count_cores(lists); }

TEST(Cores, AreCountedOnceForAllWhoMayUseThem) {
  EXPECT_EQ(count({"3"}), 1);
  EXPECT_EQ(count({"0-3,8"}), 5);
  EXPECT_EQ(count({"0", "1", "1-2"}), 3) << "ranks that are bound";
  EXPECT_EQ(count({"0-1023"}), 1024);
}

TEST(Cores, AreUnknownWhereOneListIs) {
  EXPECT_EQ(count({"0", ""}), std::nullopt);
  for (const char* wrong : {"x", "3-1", "1024", "0,,1", "-1"})
    EXPECT_EQ(count({wrong}), std::nullopt) << wrong;
}

TEST(Cores, OfThisProcessAreThoseThatItMayUse) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(count({usable_cores()}), CPU_COUNT(&before));
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), std::to_string(core));
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace altorch
