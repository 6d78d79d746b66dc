#include "collectives/algorithm.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace altorch {
namespace {

TEST(Algorithms, AreFoundByOperationAndName) {
  std::set<std::pair<OpKind, std::string>> seen;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_EQ(find_algorithm(algorithm.kind, algorithm.name), &algorithm);
    EXPECT_TRUE(seen.emplace(algorithm.kind, algorithm.name).second) << algorithm.name << " stands twice";
  }
  EXPECT_EQ(find_algorithm(OpKind::kAllReduce, "dissemination"), nullptr);
  EXPECT_EQ(find_algorithm(OpKind::kSend, "ring"), nullptr);
}

TEST(Algorithms, StandTogetherByOperationAndSayWhatTheyAre) {
  std::set<OpKind> finished;
  const Algorithm* last = nullptr;
  for (const Algorithm& algorithm : algorithms()) {
    if (last != nullptr && last->kind != algorithm.kind) finished.insert(last->kind);
    EXPECT_EQ(finished.count(algorithm.kind), 0u) << name_of(algorithm.kind) << " stands in two places";
    EXPECT_FALSE(algorithm.summary.empty());
    EXPECT_FALSE(algorithm.cost_formula.empty());
    last = &algorithm;
  }
  // Every collective can be carried out with any counts.
  for (int kind = 0; kind < static_cast<int>(OpKind::kSend); ++kind) {
    bool any = false;
    for (const Algorithm& algorithm : algorithms()) {
      any = any || (static_cast<int>(algorithm.kind) == kind && !algorithm.even_only);
    }
    EXPECT_TRUE(any) << name_of(static_cast<OpKind>(kind));
  }
}

}  // namespace
}  // namespace altorch
