// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/board.h"

#include <algorithm>

#include "base/rounding.h"

namespace altorch {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmallestPiece = 64 << 10, kLargestPiece = 4 << 20;
// What a rank reads of the others in a small exchange: beyond, copy engines and flags are faster.
constexpr std::size_t kSmallReads = 512 << 10;
// Of a block between two ranks, measured by benchmarks/cuda_collectives.py.
constexpr std::size_t kMostForPairs = 64 << 10;
constexpr std::uint32_t kFarAhead = 1u << 29;

std::size_t whole_pages(std::size_t bytes) { return rounded_up(bytes, kPage); }

}  // namespace

// The abort note comes first. Then come the posts, the flags of messages, the LL slots of small and
// pairwise exchanges, and the data of posts and messages. Each part begins at a page.
BoardOffsets::BoardOffsets(const BoardLayout& layout) {
  const auto ranks = static_cast<std::size_t>(layout.ranks), pairs = ranks * (ranks - 1);
  posts = kPage;
  messages = posts + whole_pages(ranks * layout.slots * sizeof(Board::Post));
  ll = messages + whole_pages(pairs * layout.message_slots * sizeof(Board::MessageSlot));
  this->pairs = ll + whole_pages(ranks * layout.ll_shape().bytes());
  data = this->pairs + whole_pages(pairs * layout.pair_shape().bytes());
  message_data = data + ranks * layout.slots * layout.slot_bytes;
  end = message_data + pairs * layout.message_slots * layout.message_bytes;
}

BoardLayout BoardLayout::fitting(int ranks, std::size_t bytes) {
  const auto count = static_cast<std::size_t>(ranks);
  BoardLayout layout{.ranks = ranks};
  const auto fit = [](std::size_t pieces, std::size_t room) {
    std::size_t piece = kLargestPiece;
    while (piece > kSmallestPiece && pieces * piece > room) piece /= 2;
    return piece;
  };
  layout.slot_bytes = fit(count * layout.slots, bytes / 4 * 3);
  layout.message_bytes = fit(count * (count - 1) * layout.message_slots, bytes / 4);
  layout.ll_bytes = std::max(kPage, kSmallReads / std::max<std::size_t>(1, count - 1) / kPage * kPage);
  return layout;
}

std::size_t BoardLayout::pair_bytes() const {
  if (ranks < 2 || ranks > PairExchange::kMost) return 0;
  return std::min(kMostForPairs, ll_bytes) / static_cast<std::size_t>(ranks) / 4 * 4;
}

LlSlotShape BoardLayout::ll_shape() const { return LlSlotShape::of(ll_bytes, ranks, ll_blocks); }

LlSlotShape BoardLayout::pair_shape() const {
  return LlExchanges::pair_shape(ranks, pair_bytes(), ll_blocks);
}

std::size_t BoardLayout::bytes() const { return BoardOffsets(*this).end; }

Board::Board(PinnedMemory memory, const BoardLayout& layout, int rank)
    : memory_(std::move(memory)), layout_(layout), offsets_(layout), rank_(rank) {}

AbortNote& Board::note() const { return *at<AbortNote>(0); }

std::size_t Board::pair(int from, int to, std::size_t number, std::size_t index) const {
  const int others = to > from ? to - 1 : to;  // no rank writes to itself
  return static_cast<std::size_t>(from * (layout_.ranks - 1) + others) * number + index;
}

Board::Post& Board::post(int rank, std::size_t slot) const {
  return at<Post>(offsets_.posts)[static_cast<std::size_t>(rank) * layout_.slots + slot];
}

std::byte* Board::data(int rank, std::size_t slot) const {
  const std::size_t number = static_cast<std::size_t>(rank) * layout_.slots + slot;
  return at<std::byte>(offsets_.data) + number * layout_.slot_bytes;
}

Board::MessageSlot& Board::message_slot(int from, int to, std::size_t slot) const {
  return at<MessageSlot>(offsets_.messages)[pair(from, to, layout_.message_slots, slot)];
}

std::byte* Board::message_data(int from, int to, std::size_t slot) const {
  return at<std::byte>(offsets_.message_data) +
         pair(from, to, layout_.message_slots, slot) * layout_.message_bytes;
}

std::uint64_t* Board::ll_place(int rank) const {
  return at<std::uint64_t>(offsets_.ll + static_cast<std::size_t>(rank) * layout_.ll_shape().bytes());
}

std::uint64_t* Board::pair_place(int from, int to) const {
  return at<std::uint64_t>(offsets_.pairs + pair(from, to, 1, 0) * layout_.pair_shape().bytes());
}

const std::uint32_t* Board::abort_flag() const { return &note().aborted; }

void Board::abort(const std::string& why, std::uint32_t pieces, std::uint32_t messages) {
  note().write(why);
  for (int rank = 0; rank < layout_.ranks; ++rank) {
    for (std::size_t slot = 0; slot < layout_.slots; ++slot) {
      Post& entry = post(rank, slot);
      for (Flag* flag : {&entry.posted, &entry.reduced, &entry.done}) flag->raise(pieces + kFarAhead);
    }
    for (std::size_t slot = 0; slot < layout_.message_slots && rank != rank_; ++slot) {
      message_slot(rank, rank_, slot).filled.raise(messages + kFarAhead);
      message_slot(rank_, rank, slot).emptied.raise(messages + kFarAhead);
    }
  }
}

std::optional<std::string> Board::aborted() const { return note().read(); }

}  // namespace altorch
