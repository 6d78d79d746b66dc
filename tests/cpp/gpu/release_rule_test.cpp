// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/release_rule.h"

#include <gtest/gtest.h>

namespace altorch {
namespace {

TEST(ReleaseRule, AsksTheStreamFirstAndThenTheDevice) {
  struct Row {
    bool is_calls_stream, is_captured, is_over, releases;
  };
  constexpr Row kRows[] = {
      {true, false, false, true},  // reuse on this stream comes behind the call
      {true, false, true, true},
      {true, true, false, true},  // in the same graph
      {true, true, true, true},
      {false, false, false, false},  // reuse on the call's stream would run beside it
      {false, false, true, true},
      {false, true, false, false},  // each replay does it again
      {false, true, true, false},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(releases_tensors(row.is_calls_stream, row.is_captured, row.is_over), row.releases)
        << row.is_calls_stream << row.is_captured << row.is_over;
  }
}

}  // namespace
}  // namespace altorch
