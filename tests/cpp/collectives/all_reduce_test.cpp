// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cstring>

#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(AllReduce, IsProvedFor1To64Ranks) { prove(OpKind::kAllReduce); }

TEST(AllReduce, FloatsAreCloseToTheReferenceAndRepeatable) {
  prove_floats(OpKind::kAllReduce, {1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 33, 64});
}

TEST(AllReduce, EveryRankEndsWithTheSameBits) {
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    if (algorithm.kind != OpKind::kAllReduce) continue;
    for (int p = 2; p <= kLargestSize; ++p) {
      const Call call{.algorithm = &algorithm, .size = p, .count = 101, .segment = p % 2 == 0 ? 3 : 0};
      VirtualRanks<float> ranks(call);
      ASSERT_EQ(ranks.run(), "") << call.describe();
      const auto first = ranks.output(0);
      for (int rank = 1; rank < p; ++rank) {
        ASSERT_EQ(std::memcmp(first.data(), ranks.output(rank).data(), first.size_bytes()), 0)
            << "rank " << rank << " differs from rank 0 in " << call.describe();
      }
    }
  }
}

// Which of two NaNs a sum keeps depends on the order of its operands, and on nothing else.
TEST(AllReduce, EveryRankKeepsTheSameNaN) {
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    if (algorithm.kind != OpKind::kAllReduce) continue;
    for (int p = 2; p <= 33; ++p) {
      const Call call{.algorithm = &algorithm, .size = p, .count = 40};
      VirtualRanks<float> ranks(call);
      for (int rank = 0; rank < p; ++rank) {
        for (int i = 0; i < 40; ++i) {
          if ((rank + i) % 3 != 0) {
            ranks.set_output(rank, i,
                             std::bit_cast<float>(0x7fc00000u + static_cast<unsigned>(rank * 64 + i)));
          }
        }
      }
      ASSERT_EQ(ranks.run(), "") << call.describe();
      for (int rank = 1; rank < p; ++rank) {
        ASSERT_EQ(std::memcmp(ranks.output(0).data(), ranks.output(rank).data(), 40 * sizeof(float)), 0)
            << "rank " << rank << " differs from rank 0 in " << call.describe();
      }
    }
  }
}

TEST(AllReduce, RecursiveDoublingAndRabenseifnerAgreeInEveryBit) {
  for (int p = 2; p <= kLargestSize; ++p) {
    Call call{.algorithm = find_algorithm(OpKind::kAllReduce, "recursive_doubling"), .size = p, .count = 67};
    VirtualRanks<float> doubling(call);
    ASSERT_EQ(doubling.run(), "");
    call.algorithm = find_algorithm(OpKind::kAllReduce, "rabenseifner");
    VirtualRanks<float> halving(call);
    ASSERT_EQ(halving.run(), "");
    ASSERT_EQ(
        std::memcmp(doubling.output(0).data(), halving.output(0).data(), doubling.output(0).size_bytes()), 0)
        << call.describe();
  }
}

}  // namespace
}  // namespace altorch::proof
