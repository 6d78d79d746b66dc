// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace altorch {
namespace {

PinnedMemory memory_for(const BoardLayout& layout) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, layout.bytes()));
  std::memset(memory, 0, layout.bytes());
  return {memory, [](std::byte* pinned) { std::free(pinned); }};
}

TEST(Board, FitsIntoItsMemory) {
  for (const int ranks : {1, 2, 8, 64}) {
    for (const std::size_t bytes : {std::size_t{64} << 20, std::size_t{1} << 30}) {
      const BoardLayout layout = BoardLayout::fitting(ranks, bytes);
      EXPECT_GE(layout.slot_bytes, 64u << 10);
      EXPECT_LE(layout.slot_bytes, 4u << 20);
      // Where even the smallest pieces are too many, they are the smallest.
      if (layout.message_bytes > (64u << 10)) {
        const std::size_t small = 4 * layout.ll_bytes * static_cast<std::size_t>(ranks);
        EXPECT_LE(layout.bytes(), bytes + small + (1 << 20));
      }
    }
  }
}

TEST(Board, KeepsThePlacesOfAllRanksApart) {
  const BoardLayout layout{
      .ranks = 3, .slots = 2, .slot_bytes = 64 << 10, .message_slots = 2, .message_bytes = 64 << 10};
  const auto memory = memory_for(layout);
  const Board board(memory, layout, 0);
  ASSERT_GT(layout.pair_bytes(), 0u);
  std::vector<std::pair<std::byte*, std::size_t>> places;
  for (int rank = 0; rank < 3; ++rank) {
    const auto words = [&](std::uint64_t* place, const LlSlotShape& shape, std::size_t bytes) {
      EXPECT_GE(shape.bytes(), 4 * bytes);  // twice, and half of it is numbers
      places.emplace_back(reinterpret_cast<std::byte*>(place), shape.bytes());
    };
    words(board.ll_place(rank), layout.ll_shape(), layout.ll_bytes);
    for (int to = 0; to < 3; ++to)
      if (to != rank) words(board.pair_place(rank, to), layout.pair_shape(), layout.pair_bytes());
    for (std::size_t slot = 0; slot < 2; ++slot) {
      places.emplace_back(reinterpret_cast<std::byte*>(&board.post(rank, slot)), sizeof(Board::Post));
      places.emplace_back(board.data(rank, slot), layout.slot_bytes);
      for (int to = 0; to < 3; ++to) {
        if (to == rank) continue;
        places.emplace_back(reinterpret_cast<std::byte*>(&board.message_slot(rank, to, slot)),
                            sizeof(Board::MessageSlot));
        places.emplace_back(board.message_data(rank, to, slot), layout.message_bytes);
      }
    }
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::byte* end = places[i].first + places[i].second;
    EXPECT_LE(end, i + 1 < places.size() ? places[i + 1].first : memory.get() + layout.bytes());
  }
}

TEST(Board, AbortsForAllRanksWithTheFirstReason) {
  const BoardLayout layout{.ranks = 2, .slots = 2, .slot_bytes = 64 << 10};
  const auto memory = memory_for(layout);
  Board first(memory, layout, 0), second(memory, layout, 1);
  EXPECT_FALSE(second.aborted());
  first.abort("it is enough", 7, 7);
  second.abort("something else", 7, 7);
  EXPECT_EQ(second.aborted(), "it is enough");
  for (const std::uint32_t value : {1u, 7u, 5000u}) {
    EXPECT_TRUE(first.post(1, 0).posted.reached(value));
    EXPECT_TRUE(first.message_slot(1, 0, 1).filled.reached(value));
  }
}

}  // namespace
}  // namespace altorch
