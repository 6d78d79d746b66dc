// Memory of one rank's GPU that the others write to, laid out: for each of them a region of the same kind, with
// places for small exchanges and for those of pairs (engine/small_exchanges.h), and flags and places for what is
// larger (device/kernels/rounds.cuh). Every rank computes the same layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/small_exchanges.h"

namespace altorch {

struct PeerLayout {
  static constexpr int kUsualBlocks = 72;
  int ranks = 2;
  std::size_t small_bytes =
      64 << 10;  // what a rank may post for each in one kernel, with numbers beside its data
  std::size_t pair_bytes = 64 << 10;   // the same for one other
  std::size_t part_bytes = 128 << 10;  // what a block of threads has under way at once
  // Blocks of threads: of small exchanges, of reductions in shares, of folds; of mail to or from each rank in collectives, and
  // of letters: messages are not in one order with collectives. Of the last three as many again take what comes.
  int small_blocks = SmallExchange::kMostBlocks, share_blocks = BulkPlaces::kMostBlocks / 2,
      fold_blocks = BulkPlaces::kMostBlocks / 2, mail_blocks = BulkPlaces::kMostBlocks / 2,
      letter_blocks = BulkPlaces::kMostBlocks / 4;
  int line_blocks = 0;         // of what goes in lines; 0: nothing does
  int moving_line_blocks = 1;  // of them, of what only moves, for each other rank
  static constexpr int kAny = 1 << 20;
  int most_launched = kAny;          // blocks of a kernel in lines: see line_threads()
  int most_beside = kAny;            // the same, so that kernels that are not ours find a multiprocessor
  std::size_t one_shot_bytes = 0;    // of a reduction in lines; larger ones go in shares that are passed on
  int norm_blocks = 4;               // of all_reduces with a norm behind them
  std::size_t norm_bytes = 4 << 10;  // of rows that one of them has at once

  // Where lines serve, words go up to kWords: each has as much of its number as of data, but there is less to do.
  static constexpr std::size_t kWords = 128 << 10;
  static std::size_t small_bytes_among(int ranks);
  static std::size_t pair_bytes_among(int ranks);
  // The largest parts with which a rank's memory is about `bytes`, for kernels of at most so many blocks. `linked`: by
  // NVLink, so that something may go in lines. most_launched: of Options(max_ctas=), which counts blocks of any size. most_beside:
  // World::waiting_blocks.
  static PeerLayout fitting(int ranks, std::size_t bytes, bool linked, int most_blocks = kUsualBlocks,
                            int most_launched = kAny, int most_beside = kAny);

  PlaceShape small_shape() const { return PlaceShape::of(small_bytes, 1, small_blocks); }
  // Two ranks reduce everything each: that is as much on the way as shares that are passed on, and one wait less.
  bool reduces_in_shares() const { return ranks > 2; }
  // All of it in lines, however much it is.
  bool reduces_in_lines() const { return line_blocks > 0 && ranks > 1; }
  bool moves_in_lines() const { return line_blocks > 0 && ranks > 2; }
  bool passes_shares(std::int64_t bytes) const {
    return reduces_in_shares() && bytes > static_cast<std::int64_t>(one_shot_bytes);
  }
  // The same warps in smaller blocks are on more multiprocessors, each of whose schedulers has fewer of them to go through: how many
  // threads to a block, of so many whole blocks.
  int line_threads(int blocks) const;
  // Whether what one rank has for another is moved in lines: so many bytes, or what the other has for it if that is more.
  bool moves_in_lines(std::int64_t bytes) const;
  PlaceShape pair_shape() const { return SmallExchanges::pair_shape(ranks, pair_bytes, small_blocks); }

  PlaceShape norm_shape() const {
    return PlaceShape::of(static_cast<std::size_t>(norm_blocks) * norm_bytes, 1, norm_blocks);
  }

  // Of a region, in bytes from its beginning.
  struct Offsets {
    std::size_t small, pairs, norms, lines, flags, shares, folds, mail, letters, end;
  };
  Offsets offsets() const;
  // Where the region of `source` begins in the memory of another rank; nobody has one of its own, but a rank alone.
  std::size_t region(int owner, int source) const {
    return static_cast<std::size_t>(source > owner ? source - 1 : source) * offsets().end;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(ranks > 1 ? ranks - 1 : 1) * offsets().end; }
};

}  // namespace altorch
