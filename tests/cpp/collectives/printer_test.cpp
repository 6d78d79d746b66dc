// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/printer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace altorch {
namespace {

TEST(Printer, ShowsWhatARankDoes) {
  const Algorithm* algorithm = find_algorithm(OpKind::kAllReduce, "recursive_doubling");
  ASSERT_NE(algorithm, nullptr);
  EXPECT_EQ(describe(*algorithm, {.rank = 1, .size = 4, .count = 256}),
            "all_reduce recursive_doubling, rank 1 of 4, 256 elements\n"
            "2 rounds of messages, 512 elements sent, 256 elements of scratch\n"
            "round 1     receive scratch[0:256] from 0\n"
            "            send output[0:256] to 0\n"
            "then        output[0:256] = scratch[0:256] (op) output[0:256]\n"
            "round 2     receive scratch[0:256] from 3\n"
            "            send output[0:256] to 3\n"
            "then        output[0:256] = output[0:256] (op) scratch[0:256]\n");
}

TEST(Printer, SaysWhereThePartsOfACombinationLie) {
  const Algorithm* algorithm = find_algorithm(OpKind::kAllReduce, "one_shot");
  ASSERT_NE(algorithm, nullptr);
  const std::string text = describe(*algorithm, {.rank = 1, .size = 3, .count = 10});
  EXPECT_NE(text.find("then        output[0:10] = 3 parts: scratch[0:20], output[0:10] at place 1\n"),
            std::string::npos)
      << text;
}

TEST(Printer, NamesSegmentsAndCountsTheRoundsItLeavesOut) {
  const Algorithm* algorithm = find_algorithm(OpKind::kAllReduce, "ring");
  ASSERT_NE(algorithm, nullptr);
  const std::string text = describe(*algorithm, {.rank = 0, .size = 8, .count = 800, .segment_count = 50}, 3);
  EXPECT_NE(text.find("800 elements in segments of 50\n21 rounds of messages, 1400 elements sent, 100"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("meanwhile   output["), std::string::npos) << text;
  EXPECT_NE(text.find("round 3 "), std::string::npos) << text;
  EXPECT_EQ(text.find("round 4 "), std::string::npos) << text;
  EXPECT_NE(text.find("... and 18 more rounds\n"), std::string::npos) << text;
}

TEST(Printer, DescribesEveryAlgorithmForOneRankAndForSeven) {
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    for (const int size : {1, 7}) {
      const std::string text = describe(algorithm, {.rank = size - 1, .size = size, .count = 5}, -1);
      EXPECT_EQ(text.find("more rounds"), std::string::npos) << text;
      const auto lines = std::count(text.begin(), text.end(), '\n');
      EXPECT_GE(lines, size == 1 ? 2 : 3) << text;
    }
  }
}

}  // namespace
}  // namespace altorch
