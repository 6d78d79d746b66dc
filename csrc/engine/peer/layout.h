// SPDX-License-Identifier: BSD-3-Clause
// Memory of one rank's GPU that the others write to, laid out: for each of them a region of the same kind, with
// places for small exchanges and for those of pairs (engine/gpu/small_exchanges.h), and flags and places for what is
// larger (device/kernels/rounds.cuh). Every rank computes the same layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/gpu/small_exchanges.h"

namespace altorch {

struct PeerLayout {
  static constexpr int kUsualBlocks = 72;
  int ranks = 2;
  std::size_t small_bytes =
      64 << 10;  // what a rank may post for each in one kernel, with numbers beside its data
  std::size_t pair_bytes = 64 << 10;   // the same for one other
  std::size_t part_bytes = 128 << 10;  // what a block of threads has under way at once
  // Thread blocks of small exchanges, of two-shot and one-shot reductions, of exchanges with each rank in collectives, and of
  // messages, which have no common order with collectives. The last three launch as many blocks again that pull.
  int small_blocks = SmallExchange::kMostBlocks, two_shot_blocks = BulkSlots::kMostBlocks / 2,
      one_shot_blocks = BulkSlots::kMostBlocks / 2, exchange_blocks = BulkSlots::kMostBlocks / 2,
      message_blocks = BulkSlots::kMostBlocks / 4;
  int ll128_blocks = 0;         // of LL128 kernels; 0: LL128 is not used
  int moving_ll128_blocks = 1;  // of them, of what only moves, for each other rank
  static constexpr int kAny = 1 << 20;
  int most_launched = kAny;          // blocks of an LL128 kernel: see ll128_threads()
  int most_beside = kAny;            // the same, so that kernels that are not ours find a multiprocessor
  std::size_t one_shot_bytes = 0;    // of a reduction by LL128; larger ones are two-shot
  int norm_blocks = 4;               // of all_reduces with a norm behind them
  std::size_t norm_bytes = 4 << 10;  // of rows that one of them has at once

  // With LL128, small exchanges (LL) end at kWords: half of what they send is numbers, but they take fewer instructions.
  static constexpr std::size_t kWords = 128 << 10;
  static std::size_t small_bytes_among(int ranks);
  static std::size_t pair_bytes_among(int ranks);
  // The largest parts with which a rank's memory is about `bytes`, for kernels of at most so many blocks. `linked`: by
  // NVLink, so that LL128 may be used. most_launched: of Options(max_ctas=), which counts blocks of any size. most_beside:
  // World::waiting_blocks.
  static PeerLayout fitting(int ranks, std::size_t bytes, bool linked, int most_blocks = kUsualBlocks,
                            int most_launched = kAny, int most_beside = kAny);

  PlaceShape small_shape() const { return PlaceShape::of(small_bytes, 1, small_blocks); }
  // Two ranks reduce everything each: that is as much on the way as shares that are passed on, and one wait less.
  bool reduces_two_shot() const { return ranks > 2; }
  // Whether LL128 serves every size.
  bool reduces_by_ll128() const { return ll128_blocks > 0 && ranks > 1; }
  bool moves_by_ll128() const { return ll128_blocks > 0 && ranks > 2; }
  bool is_two_shot(std::int64_t bytes) const {
    return reduces_two_shot() && bytes > static_cast<std::int64_t>(one_shot_bytes);
  }
  // How many threads a block has, if the warps of so many blocks of 512 threads are launched. Smaller blocks spread the warps
  // over more multiprocessors, so that fewer warps share a scheduler.
  int ll128_threads(int blocks) const;
  // Whether LL128 moves what two ranks have for each other, of which the larger block has so many bytes.
  bool moves_by_ll128(std::int64_t bytes) const;
  PlaceShape pair_shape() const { return SmallExchanges::pair_shape(ranks, pair_bytes, small_blocks); }

  PlaceShape norm_shape() const {
    return PlaceShape::of(static_cast<std::size_t>(norm_blocks) * norm_bytes, 1, norm_blocks);
  }

  // Of a region, in bytes from its beginning.
  struct Offsets {
    std::size_t small, pairs, norms, ll128, flags, two_shot, one_shot, exchange, messages, end;
  };
  Offsets offsets() const;
  // Where the region of `source` begins in the memory of another rank; nobody has one of its own, but a rank alone.
  std::size_t region(int owner, int source) const {
    return static_cast<std::size_t>(source > owner ? source - 1 : source) * offsets().end;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(ranks > 1 ? ranks - 1 : 1) * offsets().end; }
};

}  // namespace altorch
