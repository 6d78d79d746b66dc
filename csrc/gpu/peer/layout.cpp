// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/peer/layout.h"

#include <algorithm>

#include "base/rounding.h"
#include "device/device.h"

namespace altorch {
namespace {

constexpr std::size_t kAligned = 4096;
constexpr std::size_t kSmallToAll = 256 << 10, kSmallestSmall = 32 << 10, kSmallBetweenTwo = 1 << 20,
                      kPairOfTwo = 512 << 10;
// Rows that a block of threads sums at once: up to 16,384 numbers of 16 bits, as wide as layers of
// transformers are. All of it takes at most 8 MiB.
constexpr std::size_t kMaxRowBytes = 32 << 10, kRowsFromAll = 64 << 10;
constexpr int kMostNormBlocks = 32;
constexpr std::size_t kSmallestPart = 8 << 10, kLargestPart = 128 << 10;
// Up to how many bytes LL128 moves data between two GPUs. LL128 has less latency than flags, and
// uses more of the link. Between two H100s and H200s it is faster for reductions of any size, and
// among four for moves, too (docs/benchmarks.md).
constexpr std::int64_t kMovedByLl128BetweenTwo = 32 << 20;
// The most bytes of a one-shot reduction among more than two ranks, to be divided by the number of
// peers: 256 KiB among four ranks. Larger reductions are two-shot.
constexpr std::size_t kOneShotAmongMore = 768 << 10;
// LL128 blocks that reduce, to be divided by the other ranks, since their slots take memory; and
// blocks that move data to all other ranks together: with as many as reduce, 8 MiB and more take a
// tenth longer.
constexpr int kMostReducing = 72, kReducingLl128Blocks = 3 * kMostReducing, kMovingBetweenTwo = 48,
              kMovingAmongMore = 64;
// Of those that pack what they send in 8 bits, which computes more: 4 MiB of bfloat16 between two
// GPUs takes 12.9 us, and 16.4 with 72 blocks (docs/quantized.md).
constexpr int kPackingLl128Blocks = 3 * PeerLayout::kUsualBlocks;

std::size_t aligned(std::size_t bytes) { return rounded_up(bytes, kAligned); }

// Four slots, or two rounds with two kinds of data.
std::size_t place_bytes(int blocks, std::size_t part) { return 4 * static_cast<std::size_t>(blocks) * part; }

}  // namespace

std::size_t PeerLayout::ll_bytes_among(int ranks) {
  if (ranks == 2) return kSmallBetweenTwo;
  return std::max(kSmallestSmall,
                  kSmallToAll / static_cast<std::size_t>(std::max(1, ranks - 1)) / 1024 * 1024);
}

std::size_t PeerLayout::pair_bytes_among(int ranks) {
  return ranks == 2 ? kPairOfTwo : ll_bytes_among(ranks);
}

PeerLayout PeerLayout::fitting(int ranks, std::size_t bytes, bool linked, int most_blocks, int most_launched,
                               int most_beside) {
  PeerLayout layout{.ranks = ranks, .most_launched = most_launched, .most_beside = most_beside};
  most_blocks = std::max(1, most_blocks);
  const auto share_of = [](int all, int share, int most) { return std::clamp(all / share, 1, most); };
  // Without LL128: at most as many as were measured, and as leave parts their size.
  const auto blocks = [&](int share, int most) {
    return share_of(std::min(most_blocks, BulkSlots::kMostBlocks), share, most);
  };
  layout.ll_blocks = blocks(1, LlExchange::kMostBlocks);
  layout.two_shot_blocks = blocks(1, BulkSlots::kMostBlocks / 2);
  layout.one_shot_blocks = blocks(2, BulkSlots::kMostBlocks);
  layout.exchange_blocks = blocks(2 * std::max(1, ranks - 1), BulkSlots::kMostBlocks);
  const int others = std::max(1, ranks - 1);
  if (linked) {
    layout.ll128_blocks =
        share_of(kPackingLl128Blocks, others, std::min(most_blocks, Ll128Slots::kMostBlocks));
    layout.reducing_ll128_blocks =
        share_of(kReducingLl128Blocks, others, std::min(layout.ll128_blocks, kMostReducing));
    const int moving = std::min(most_blocks, ranks == 2 ? kMovingBetweenTwo : kMovingAmongMore) / others;
    // What a rank has for itself takes as many.
    layout.moving_ll128_blocks = std::clamp(std::min(moving, most_launched / ranks), 1, layout.ll128_blocks);
  }
  layout.one_shot_bytes = kOneShotAmongMore / static_cast<std::size_t>(others);
  layout.message_blocks = std::max(1, layout.exchange_blocks / 2);
  layout.norm_blocks = blocks(2, kMostNormBlocks);
  layout.norm_bytes =
      std::min(kMaxRowBytes, kRowsFromAll / static_cast<std::size_t>(std::max(1, ranks - 1)) / 1024 * 1024);
  layout.ll_bytes = linked ? std::min(kWords, ll_bytes_among(ranks)) : ll_bytes_among(ranks);
  layout.pair_bytes = linked && ranks == 2 ? kWords : pair_bytes_among(ranks);
  layout.part_bytes = kLargestPart;
  while (layout.part_bytes > kSmallestPart && layout.bytes() > bytes) layout.part_bytes /= 2;
  return layout;
}

int PeerLayout::ll128_threads(int blocks) const {
  int threads = Ll128Slots::kFewestThreads;
  const int most = std::min(most_launched, most_beside);
  while (threads < Ll128Slots::kThreads && blocks * (Ll128Slots::kThreads / threads) > most) threads *= 2;
  return threads;
}

bool PeerLayout::moves_by_ll128(std::int64_t bytes) const {
  return moves_by_ll128() || (ll128_blocks > 0 && ranks == 2 && bytes <= kMovedByLl128BetweenTwo);
}

PeerLayout::Offsets PeerLayout::offsets() const {
  Offsets at{};
  at.pairs = at.ll + aligned(ll_shape().bytes());
  at.norms = at.pairs + aligned(pair_shape().bytes());
  at.ll128 = at.norms + aligned(norm_shape().bytes());
  at.flags =
      at.ll128 +
      aligned(static_cast<std::size_t>(ll128_blocks * Ll128Slots::kWarpsOfBlock * Ll128Slots::kBytesOfWarp));
  at.two_shot = at.flags + aligned(static_cast<std::size_t>(two_shot_blocks + 2 * one_shot_blocks +
                                                            2 * exchange_blocks + 2 * message_blocks) *
                                   sizeof(std::uint32_t));
  at.one_shot =
      at.two_shot +
      (reduces_two_shot() && !reduces_by_ll128() ? aligned(place_bytes(two_shot_blocks, part_bytes)) : 0);
  at.exchange = at.one_shot + (reduces_by_ll128() ? 0 : aligned(place_bytes(one_shot_blocks, part_bytes)));
  at.messages = at.exchange + (moves_by_ll128() ? 0 : aligned(place_bytes(exchange_blocks, part_bytes)));
  at.end = at.messages + aligned(place_bytes(message_blocks, part_bytes));
  return at;
}

}  // namespace altorch
