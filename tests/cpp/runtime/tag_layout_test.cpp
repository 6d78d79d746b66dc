// SPDX-License-Identifier: BSD-3-Clause
// Tags of users, windows and collectives do not meet.
#include "runtime/tag_layout.h"

#include <gtest/gtest.h>

namespace altorch {
namespace {

// What MPI guarantees, what MPICH, UCX and Open MPI have, and the other transports.
TEST(TagLayout, EachUserHasItsOwnTags) {
  constexpr std::int64_t kEach = 5;
  for (const std::int64_t most :
       {std::int64_t{32'767}, (std::int64_t{1} << 22) - 1, std::int64_t{1} << 26, (std::int64_t{1} << 28) - 1,
        (std::int64_t{1} << 31) - 1, std::int64_t{1'000'000}, (std::int64_t{1} << 40) - 1,
        (std::int64_t{1} << 62) - 1}) {
    const TagLayout tags(most);
    EXPECT_LE(most / 8, tags.max_message());
    EXPECT_EQ(tags.own_message(), tags.max_message() + 1);
    EXPECT_LT(tags.first_engine() + (tags.first_engine() - 1), most + 1);
    for (int number = 0; number < 10'000; ++number) {
      const std::int64_t first = tags.window(number, kEach);
      ASSERT_GT(first, tags.own_message()) << most;
      ASSERT_LE(first + kEach, tags.first_engine()) << most;
    }
    EXPECT_NE(tags.window(0, kEach), tags.window(1, kEach));
  }
}

}  // namespace
}  // namespace altorch
