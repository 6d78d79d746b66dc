#include "engine/peer/layout.h"

#include <algorithm>

#include "common/rounding.h"
#include "device/device.h"

namespace altorch {
namespace {

constexpr std::size_t kAligned = 4096;
constexpr std::size_t kSmallToAll = 256 << 10, kSmallestSmall = 32 << 10, kSmallBetweenTwo = 1 << 20,
                      kPairOfTwo = 512 << 10;
// Rows that a block of threads sums at once: up to 16,384 numbers of 16 bits, as wide as layers of transformers are. All of it
// takes at most 8 MiB.
constexpr std::size_t kMaxRowBytes = 32 << 10, kRowsFromAll = 64 << 10;
constexpr int kMostNormBlocks = 32;
constexpr std::size_t kSmallestPart = 8 << 10, kLargestPart = 128 << 10;
// What goes in lines: they are there earlier than data with a flag behind, which needs less of the link. Measured on two H100s
// and H200s, where reductions are faster so at any size, and on four, where moves are, too.
constexpr std::int64_t kMovedInLinesBetweenTwo = 32 << 20;
// Among more than two, what is reduced goes whole to everybody up to here, for each rank that it goes to: 256 KiB among four. Beyond
// it, in shares.
constexpr std::size_t kOneShotAmongMore = 768 << 10;
// Blocks that reduce in lines, by the ranks whose places take memory; and that move in lines to all others together: with as many
// as reduce, 8 MiB and more take a tenth longer.
constexpr int kReducingLines = 3 * PeerLayout::kUsualBlocks, kMovingBetweenTwo = 48, kMovingAmongMore = 64;

std::size_t aligned(std::size_t bytes) { return rounded_up(bytes, kAligned); }

// Four slots, or two rounds with two kinds of data.
std::size_t place_bytes(int blocks, std::size_t part) { return 4 * static_cast<std::size_t>(blocks) * part; }

}  // namespace

std::size_t PeerLayout::small_bytes_among(int ranks) {
  if (ranks == 2) return kSmallBetweenTwo;
  return std::max(kSmallestSmall,
                  kSmallToAll / static_cast<std::size_t>(std::max(1, ranks - 1)) / 1024 * 1024);
}

std::size_t PeerLayout::pair_bytes_among(int ranks) {
  return ranks == 2 ? kPairOfTwo : small_bytes_among(ranks);
}

PeerLayout PeerLayout::fitting(int ranks, std::size_t bytes, bool linked, int most_blocks, int most_launched,
                               int most_beside) {
  PeerLayout layout{.ranks = ranks, .most_launched = most_launched, .most_beside = most_beside};
  most_blocks = std::max(1, most_blocks);
  const auto share_of = [](int all, int share, int most) { return std::clamp(all / share, 1, most); };
  // Of what does not go in lines: as many as have been measured, and as leave parts their size.
  const auto blocks = [&](int share, int most) {
    return share_of(std::min(most_blocks, BulkPlaces::kMostBlocks), share, most);
  };
  layout.small_blocks = blocks(1, SmallExchange::kMostBlocks);
  layout.share_blocks = blocks(1, BulkPlaces::kMostBlocks / 2);
  layout.fold_blocks = blocks(2, BulkPlaces::kMostBlocks);
  layout.mail_blocks = blocks(2 * std::max(1, ranks - 1), BulkPlaces::kMostBlocks);
  const int others = std::max(1, ranks - 1);
  if (linked) {
    layout.line_blocks = share_of(kReducingLines, others, std::min(most_blocks, LinePlaces::kMostBlocks));
    const int moving = std::min(most_blocks, ranks == 2 ? kMovingBetweenTwo : kMovingAmongMore) / others;
    // What a rank has for itself takes as many.
    layout.moving_line_blocks = std::clamp(std::min(moving, most_launched / ranks), 1, layout.line_blocks);
  }
  layout.one_shot_bytes = kOneShotAmongMore / static_cast<std::size_t>(others);
  layout.letter_blocks = std::max(1, layout.mail_blocks / 2);
  layout.norm_blocks = blocks(2, kMostNormBlocks);
  layout.norm_bytes =
      std::min(kMaxRowBytes, kRowsFromAll / static_cast<std::size_t>(std::max(1, ranks - 1)) / 1024 * 1024);
  layout.small_bytes = linked ? std::min(kWords, small_bytes_among(ranks)) : small_bytes_among(ranks);
  layout.pair_bytes = linked && ranks == 2 ? kWords : pair_bytes_among(ranks);
  layout.part_bytes = kLargestPart;
  while (layout.part_bytes > kSmallestPart && layout.bytes() > bytes) layout.part_bytes /= 2;
  return layout;
}

int PeerLayout::line_threads(int blocks) const {
  int threads = LinePlaces::kFewestThreads;
  const int most = std::min(most_launched, most_beside);
  while (threads < LinePlaces::kThreads && blocks * (LinePlaces::kThreads / threads) > most) threads *= 2;
  return threads;
}

bool PeerLayout::moves_in_lines(std::int64_t bytes) const {
  return moves_in_lines() || (line_blocks > 0 && ranks == 2 && bytes <= kMovedInLinesBetweenTwo);
}

PeerLayout::Offsets PeerLayout::offsets() const {
  Offsets at{};
  at.pairs = at.small + aligned(small_shape().bytes());
  at.norms = at.pairs + aligned(pair_shape().bytes());
  at.lines = at.norms + aligned(norm_shape().bytes());
  at.flags =
      at.lines +
      aligned(static_cast<std::size_t>(line_blocks * LinePlaces::kWarpsOfBlock * LinePlaces::kBytesOfWarp));
  at.shares =
      at.flags +
      aligned(static_cast<std::size_t>(share_blocks + 2 * fold_blocks + 2 * mail_blocks + 2 * letter_blocks) *
              sizeof(std::uint32_t));
  at.folds =
      at.shares +
      (reduces_in_shares() && !reduces_in_lines() ? aligned(place_bytes(share_blocks, part_bytes)) : 0);
  at.mail = at.folds + (reduces_in_lines() ? 0 : aligned(place_bytes(fold_blocks, part_bytes)));
  at.letters = at.mail + (moves_in_lines() ? 0 : aligned(place_bytes(mail_blocks, part_bytes)));
  at.end = at.letters + aligned(place_bytes(letter_blocks, part_bytes));
  return at;
}

}  // namespace altorch
