// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/agreement.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "runtime/fingerprint.h"
#include "support/says.h"

namespace altorch {
namespace {

const std::vector<int> kPair = {0, 1};

std::shared_ptr<std::byte> memory_for(int ranks) {
  const std::size_t bytes = (Agreement::bytes(ranks) + 4095) / 4096 * 4096;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  std::memset(memory, 0, bytes);
  return {memory, [](std::byte* held) { std::free(held); }};
}

Operation call(OpKind kind, std::uint64_t sequence, std::int64_t count = 8, int root = 0) {
  Operation made;
  made.kind = kind;
  made.dtype = DType::kFloat32;
  made.count = count;
  made.root = root;
  made.sequence = sequence;
  return made;
}

std::string error_of(Agreement& agreement, const Operation& operation) {
  try {
    agreement.check(operation);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Agreement, TellsTheLaterRankAndEndsTheOthersCall) {
  const auto memory = memory_for(2);
  Agreement first(memory, 0, kPair), second(memory, 1, kPair);
  EXPECT_EQ(error_of(first, call(OpKind::kAllReduce, 1)), "");
  EXPECT_EQ(error_of(second, call(OpKind::kAllReduce, 1)), "");
  EXPECT_EQ(error_of(first, call(OpKind::kAllReduce, 2)), "");
  EXPECT_FALSE(first.aborted());
  const std::string text = error_of(second, call(OpKind::kAllReduce, 2, 9));
  EXPECT_TRUE(says(text, "rank 0 of the group called all_reduce(SUM) of 8 float32")) << text;
  EXPECT_TRUE(says(text, "rank 1 all_reduce(SUM) of 9 float32")) << text;
  EXPECT_EQ(first.aborted(), text);
  EXPECT_EQ(error_of(first, call(OpKind::kAllReduce, 3)), text);
}

// At 1aa6fc3 only what was announced was counted, so that the next calls met, one apart.
TEST(Agreement, SeesThatOneRankRefusedACallBefore) {
  const auto memory = memory_for(2);
  Agreement first(memory, 0, kPair), second(memory, 1, kPair);
  EXPECT_EQ(error_of(first, call(OpKind::kAllReduce, 1)), "");
  const std::string text = error_of(second, call(OpKind::kAllReduce, 2));  // it refused #1
  EXPECT_TRUE(says(text, "#1 of rank 0 of the group and #2 of rank 1")) << text;
}

TEST(Agreement, SeesThatEarlierCallsDiffered) {
  const auto memory = memory_for(2);
  Agreement first(memory, 0, kPair), second(memory, 1, kPair);
  Operation mine = call(OpKind::kAllReduce, 5), theirs = mine;
  mine.history = append_call(0, 1);
  theirs.history = append_call(0, 2);
  EXPECT_EQ(error_of(first, mine), "");
  EXPECT_TRUE(says(error_of(second, theirs), "not about earlier ones"));
}

TEST(Agreement, ComparesRootsAndBlocksOfEachPair) {
  struct Case {
    Operation first, second;
    const char* words;
  };
  static const std::int64_t twos[] = {2, 2}, odd[] = {3, 2};
  auto uneven = [](std::span<const std::int64_t> in, std::span<const std::int64_t> out) {
    Operation made = call(OpKind::kAllToAll, 1);
    made.input_counts = in;
    made.output_counts = out;
    return made;
  };
  Operation at_root = call(OpKind::kScatter, 1, 2), gathers = call(OpKind::kGather, 1, 2);
  at_root.input_counts = twos;
  gathers.output_counts = twos;
  const Case cases[] = {
      {call(OpKind::kBroadcast, 1, 8, 0), call(OpKind::kBroadcast, 1, 8, 1), "with root 1"},
      {uneven(twos, twos), uneven(odd, twos), "sends 12 bytes"},
      {at_root, call(OpKind::kScatter, 1, 4), "takes 16 bytes"},
      {gathers, call(OpKind::kGather, 1, 4), "sends 16 bytes"},
      {call(OpKind::kSend, 0, 4, 1), call(OpKind::kReceive, 0, 5, 0), "takes 20 bytes with tag 0"},
  };
  for (const Case& each : cases) {
    const auto memory = memory_for(2);
    Agreement first(memory, 0, kPair), second(memory, 1, kPair);
    EXPECT_EQ(error_of(first, each.first), "");
    const std::string text = error_of(second, each.second);
    EXPECT_TRUE(says(text, each.words)) << text;
  }
  const auto memory = memory_for(2);
  Agreement first(memory, 0, kPair), second(memory, 1, kPair);
  EXPECT_EQ(error_of(first, uneven(twos, odd)), "");
  EXPECT_EQ(error_of(second, uneven(twos, twos)), "");  // each pair agrees
}

TEST(Agreement, IsAmongTheRanksOfOneNode) {
  const std::vector<int> here = {1, 4};  // of a group of six
  for (const bool agree : {true, false}) {
    const auto memory = memory_for(2);
    Agreement first(memory, 1, here), second(memory, 4, here);
    for (const int elsewhere : {0, 3, 5}) {
      EXPECT_EQ(error_of(first, call(OpKind::kSend, 0, 4, elsewhere)), "");
      EXPECT_EQ(error_of(second, call(OpKind::kReceive, 0, 5, elsewhere)), "");
    }
    EXPECT_EQ(error_of(first, call(OpKind::kSend, 0, 4, 4)), "");
    EXPECT_EQ(error_of(second, call(OpKind::kReceive, 0, 4, 1)), "");
    EXPECT_EQ(error_of(first, call(OpKind::kAllReduce, 1, 8)), "");
    const std::string text = error_of(second, call(OpKind::kAllReduce, 1, agree ? 8 : 9));
    EXPECT_EQ(text.find("rank 1 of the group called") != std::string::npos, !agree) << text;
    EXPECT_EQ(text.find(", rank 4 ") != std::string::npos, !agree) << text;
  }
}

TEST(Agreement, LetsRanksRunApartAndAtOnce) {
  constexpr int kRanks = 3, kCalls = 5000;
  const std::vector<int> all = {0, 1, 2};
  const auto memory = memory_for(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      Agreement agreement(memory, rank, all);
      for (std::uint64_t number = 1; number <= kCalls; ++number) {
        const bool exchanges = number % 3 == 0;
        agreement.check(call(exchanges ? OpKind::kAllToAll : OpKind::kAllReduce, number));
        if (rank < 2) {
          Operation message = call(rank == 0 ? OpKind::kSend : OpKind::kReceive, 0, 4, 1 - rank);
          message.tag = static_cast<std::int64_t>(number);
          agreement.check(message);
        }
      }
      EXPECT_FALSE(agreement.aborted());
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace altorch
