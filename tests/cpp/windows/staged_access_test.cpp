// SPDX-License-Identifier: BSD-3-Clause
#include "windows/staged_access.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/fake_device.h"

namespace altorch {
namespace {

// What a rank that has gone mad asks for is answered, and nothing lies beside its window.
TEST(StagedAccess, RefusesWhatLiesOutside) {
  constexpr std::size_t kBytes = 64, kAround = 1 << 16;
  FakeDevice device({.longest_delay = std::chrono::microseconds(0)});
  const StagedBoard board(device.pin(StagedBoard::bytes(2)), 2);
  const PinnedMemory word = device.pin(sizeof(std::uint32_t));
  std::vector<std::byte> memory(kBytes + 2 * kAround);
  StagedAccess::Spot spot{};
  FakeDevice serving({.longest_delay = std::chrono::microseconds(0), .beside = true});
  StagedAccess access(device, serving, board, 0, 2, memory.data() + kAround, {kBytes, DType::kInt64}, spot,
                      reinterpret_cast<std::uint32_t*>(word.get()));
  std::mt19937_64 random(11);
  const auto some = [&](std::uint64_t most) { return random() % 32 == 0 ? random() : random() % (most + 1); };
  for (std::uint32_t number = 1; number <= 3000; ++number) {
    StagedBoard::Request& request = board.request(1, 2, 0, number);
    WindowRequest& asked = request.asked;
    asked.access = static_cast<std::uint8_t>(some(kCountOf<Access>));
    asked.dtype = static_cast<std::uint8_t>(some(kDTypeCount));
    asked.op = static_cast<std::uint8_t>(some(kReduceOpCount));
    asked.offset = some(kBytes), asked.row_bytes = some(16), asked.rows = some(4), asked.stride = some(32);
    asked.operand = asked.expected = static_cast<std::int64_t>(random());
    request.slot = some(StagedBoard::kSlots);
    request.number = number;
    board.asked(1, 2, 0).raise(number);
    EXPECT_TRUE(access.serve());
    EXPECT_FALSE(access.serve());
    if (number % StagedBoard::kRequests == 0) {
      ASSERT_TRUE(serving.synchronize(access.serving()));
    }
  }
  ASSERT_TRUE(serving.synchronize(access.serving()));
  EXPECT_TRUE(board.answered(1, 2, 0).reached(3000));
  const auto is_zero = [](std::byte each) { return each == std::byte{}; };
  EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + kAround, is_zero));
  EXPECT_TRUE(std::all_of(memory.end() - kAround, memory.end(), is_zero));
}

}  // namespace
}  // namespace altorch
