// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/handover.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/dtype.h"

namespace altorch {
namespace {

// Two results of floats, one behind the other, and a place for them that begins anywhere.
struct HandoverSlot {
  static constexpr std::size_t kFirst = 5, kSecond = 3, kPlace = 64;
  alignas(64) float data[64] = {};
  float tensors[kFirst + kSecond] = {};
  PieceCopy outputs[2] = {
      {reinterpret_cast<std::byte*>(tensors), reinterpret_cast<std::byte*>(data), 4 * kFirst},
      {reinterpret_cast<std::byte*>(tensors + kFirst), reinterpret_cast<std::byte*>(data + kFirst),
       4 * kSecond}};

  Handover hand_over(std::size_t offset, Gate former = {}) {
    std::iota(data, data + kFirst + kSecond, 1.0f);
    return Handover(outputs, reinterpret_cast<std::byte*>(data) + offset, poison_of(DType::kFloat32), former);
  }
  // What the GPU takes.
  std::vector<float> taken() const {
    std::vector<float> all(kFirst + kSecond);
    std::memcpy(all.data(), outputs[0].host, outputs[0].bytes);
    std::memcpy(all.data() + kFirst, outputs[1].host, outputs[1].bytes);
    return all;
  }
};

TEST(Handover, BringsResultsToAnotherPlace) {
  for (const std::size_t offset : {32, 33, 64}) {
    HandoverSlot slot;
    slot.hand_over(offset).succeed();
    std::vector<float> expected(HandoverSlot::kFirst + HandoverSlot::kSecond);
    std::iota(expected.begin(), expected.end(), 1.0f);
    EXPECT_EQ(slot.taken(), expected);
    EXPECT_GE(slot.outputs[0].host, reinterpret_cast<std::byte*>(slot.data) + offset);
  }
}

TEST(Handover, LeavesAMarkThatLateBytesDoNotReach) {
  HandoverSlot slot;
  slot.hand_over(32).abort();
  for (std::size_t i = 0; i < HandoverSlot::kFirst + HandoverSlot::kSecond; ++i)
    slot.data[i] = 7.0f;  // of a transport
  for (const float value : slot.taken()) EXPECT_TRUE(std::isnan(value));
}

TEST(Handover, LeavesTheResultOfAnEarlierCallUntilItIsTaken) {
  Flag taken{};
  HandoverSlot slot;
  const Handover results = slot.hand_over(32, Gate{&taken, 1});
  results.succeed();  // for the earlier call's result
  const std::vector<float> good = slot.taken();
  results.abort();
  EXPECT_EQ(slot.taken(), good);
  taken.raise(1);
  results.abort();
  for (const float value : slot.taken()) EXPECT_TRUE(std::isnan(value));
}

TEST(Handover, FitsBehindWhatTheCallUses) {
  EXPECT_TRUE(Handover::fits(0, 0, 64));
  EXPECT_TRUE(Handover::fits(1000, 1000, 2064));
  EXPECT_FALSE(Handover::fits(1000, 1000, 2063));
  EXPECT_TRUE(Handover::fits(0, Handover::kMost, 4 << 20));
  EXPECT_FALSE(Handover::fits(0, Handover::kMost + 1, 4 << 20));
}

}  // namespace
}  // namespace altorch
