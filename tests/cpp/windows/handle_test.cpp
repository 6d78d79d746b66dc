// SPDX-License-Identifier: BSD-3-Clause
#include "windows/handle.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace altorch {
namespace {

HostHandle example() { return {"node", "0-3", {12, 34, 56}, 4096, {1 << 20, 512}, ""}; }

TEST(WindowCard, SurvivesTheStore) {
  const HostHandle card = HostHandle::from(example().text());
  EXPECT_EQ(card.text(), example().text());
  EXPECT_EQ(card.shareable.offset, 512u);
  EXPECT_EQ(card.process.number, 56u);
  const Registered registered{100, DType::kFloat64};
  const Fields fields = registered_fields(registered);
  EXPECT_EQ(registered_from(fields[0], fields[1]).bytes, 100u);
  EXPECT_TRUE(registered_from(fields[0], fields[1]).dtype == DType::kFloat64);
}

TEST(WindowCard, SomethingElseIsRefused) {
  EXPECT_THROW(HostHandle::from("hello"), Error);
  EXPECT_THROW(HostHandle::from(encode_fields({"node"})), Error);
  EXPECT_THROW(HostHandle::from(encode_fields({"node", "", "-1", "0", "0", "", "1", "2", "3"})), Error);
  EXPECT_THROW(DeviceHandle::from(encode_fields({"gpu", "", "much", "0"})), Error);
  EXPECT_THROW(registered_from("8", std::to_string(kDTypeCount)), Error);
  EXPECT_THROW(registered_from("eight", "0"), Error);
}

// Else a peer would be written to beside its memory.
TEST(WindowCard, WhatIsMappedHoldsTheWindow) {
  const MappedPart part{100, 40};
  EXPECT_TRUE(part.holds(60));
  EXPECT_FALSE(part.holds(61));
  EXPECT_FALSE((MappedPart{100, 101}.holds(0)));
  EXPECT_FALSE((MappedPart{100, 8}.holds(std::numeric_limits<std::size_t>::max())));
}

}  // namespace
}  // namespace altorch
