// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/goal.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

#include "base/error.h"

namespace altorch {
namespace {

std::string goal_of(OpKind kind, std::int64_t elements, const Network& network) {
  Operation call;
  call.kind = kind;
  call.dtype = DType::kFloat32;
  call.count = elements;
  std::ostringstream out;
  write_goal(out, call, network);
  return out.str();
}

// Bytes by sender and receiver, as senders and as receivers have them.
TEST(Goal, EverySendHasItsReceive) {
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kAllToAll, OpKind::kBroadcast}) {
    std::istringstream in(goal_of(kind, 1000, {.nodes = 6}));
    std::map<std::pair<int, int>, std::multiset<long>> sent, received;
    int rank = -1, ranks = 0;
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string label, what, bytes, way;
      int peer = 0;
      words >> label >> what;
      if (label == "num_ranks") ranks = std::stoi(what);
      if (label == "rank") rank = std::stoi(what);
      if (what != "send" && what != "recv") continue;
      words >> bytes >> way >> peer;
      EXPECT_EQ(bytes.back(), 'b');
      auto& side = what == "send" ? sent[{rank, peer}] : received[{peer, rank}];
      side.insert(std::stol(bytes));
    }
    EXPECT_EQ(ranks, 6);
    EXPECT_FALSE(sent.empty());
    EXPECT_EQ(sent, received);
  }
}

TEST(Goal, RequiresOnlyEarlierVertices) {
  std::istringstream in(goal_of(OpKind::kAllReduce, 100000, {.nodes = 9}));
  int last = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("rank")) last = 0;
    if (!line.starts_with('l')) continue;
    if (const auto at = line.find(" requires l"); at != std::string::npos) {
      EXPECT_LT(std::stoi(line.substr(at + 11)), std::stoi(line.substr(1, at - 1)));
      EXPECT_LE(std::stoi(line.substr(1, at - 1)), last);
    } else {
      EXPECT_EQ(std::stoi(line.substr(1)), ++last);
    }
  }
}

TEST(Goal, RejectsRoutesWithoutASchedule) {
  EXPECT_THROW(goal_of(OpKind::kAllReduce, 4, {.per_node = 4}), Error);
  EXPECT_THROW(goal_of(OpKind::kAllReduce, 4, {.nodes = 2, .per_node = 4}), Error);
  EXPECT_THROW(goal_of(OpKind::kAllToAll, 4, {.nodes = 4096}), Error);
}

}  // namespace
}  // namespace altorch
