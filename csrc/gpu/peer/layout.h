// SPDX-License-Identifier: BSD-3-Clause
// The layout of the memory on one rank's GPU that its peers write to. It has one region for each
// peer, and all regions are alike. Offsets lists the parts of a region: receive slots for small
// exchanges and exchanges of pairs (LL, gpu/ll_exchanges.h), for fused norms and for LL128, then
// flags and slots for larger operations (device/kernels/rounds.cuh). Every rank computes the same
// layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/ll_exchanges.h"

namespace altorch {

struct PeerLayout {
  static constexpr int kUsualBlocks = 88;
  int ranks = 2;
  std::size_t ll_bytes =
      64 << 10;  // what a rank may send to each peer in one kernel, with numbers beside its data
  std::size_t pair_bytes = 64 << 10;   // the same for one other
  std::size_t part_bytes = 128 << 10;  // what a block of threads has under way at once
  // The most thread blocks of each kernel: small exchange, two-shot, one-shot, and for each peer
  // exchange and message. Messages have blocks of their own, because they have no common order with
  // collectives. The last three kernels launch twice as many blocks: one half pushes, the other
  // half pulls.
  int ll_blocks = LlExchange::kMostBlocks, two_shot_blocks = BulkSlots::kMostBlocks / 2,
      one_shot_blocks = BulkSlots::kMostBlocks / 2, exchange_blocks = BulkSlots::kMostBlocks / 2,
      message_blocks = BulkSlots::kMostBlocks / 4;
  int ll128_blocks = 0;           // of LL128 kernels; 0: LL128 is not used
  int reducing_ll128_blocks = 0;  // of them, in reductions of values that do not travel in 8 bits
  int moving_ll128_blocks = 1;    // of them, for each rank, in LL128 exchanges
  static constexpr int kAny = 1 << 20;
  int most_launched = kAny;          // limit of thread blocks of an LL128 kernel: Options(max_ctas=)
  int most_beside = kAny;            // a second limit, which leaves multiprocessors to other kernels
  std::size_t one_shot_bytes = 0;    // larger LL128 reductions are two-shot: see is_two_shot()
  int norm_blocks = 4;               // of an all_reduce that is fused with a norm
  std::size_t norm_bytes = 4 << 10;  // of rows, that one of these blocks sums at once

  // If LL128 is available, LL serves exchanges of up to kWords bytes: half of the bytes that LL
  // sends are numbers, but LL needs fewer instructions.
  static constexpr std::size_t kWords = 128 << 10;
  static std::size_t ll_bytes_among(int ranks);
  static std::size_t pair_bytes_among(int ranks);
  // The layout with the largest part_bytes for which a rank's memory is at most `bytes`, or else
  // with the smallest part_bytes. Kernels have at most `most_blocks` blocks. `linked`: by NVLink,
  // so that LL128 may be used. `most_launched`: from Options(max_ctas=), which counts blocks of any
  // size. `most_beside`: World::waiting_blocks.
  static PeerLayout fitting(int ranks, std::size_t bytes, bool linked, int most_blocks = kUsualBlocks,
                            int most_launched = kAny, int most_beside = kAny);

  LlSlotShape ll_shape() const { return LlSlotShape::of(ll_bytes, 1, ll_blocks); }
  // Two ranks use one-shot: it transfers as many bytes as two-shot, and waits once instead of
  // twice.
  bool reduces_two_shot() const { return ranks > 2; }
  // Whether LL128 carries reductions, and exchanges, of every size.
  bool reduces_by_ll128() const { return ll128_blocks > 0 && ranks > 1; }
  bool moves_by_ll128() const { return ll128_blocks > 0 && ranks > 2; }
  bool is_two_shot(std::int64_t bytes) const {
    return reduces_two_shot() && bytes > static_cast<std::int64_t>(one_shot_bytes);
  }
  // How many threads a block has, if the warps of so many blocks of 512 threads are launched.
  // Smaller blocks spread the warps over more multiprocessors, so that fewer warps share a
  // scheduler.
  int ll128_threads(int blocks) const;
  // Whether LL128 moves what two ranks have for each other, of which the larger block has so many
  // bytes.
  bool moves_by_ll128(std::int64_t bytes) const;
  LlSlotShape pair_shape() const { return LlExchanges::pair_shape(ranks, pair_bytes, ll_blocks); }

  LlSlotShape norm_shape() const {
    return LlSlotShape::of(static_cast<std::size_t>(norm_blocks) * norm_bytes, 1, norm_blocks);
  }

  // Of a region, in bytes from its beginning.
  struct Offsets {
    std::size_t ll, pairs, norms, ll128, flags, two_shot, one_shot, exchange, messages, end;
  };
  Offsets offsets() const;
  // Where the region that rank `source` writes to begins in the memory of rank `owner`, in bytes.
  // No rank has a region for itself, unless it is the only rank.
  std::size_t region(int owner, int source) const {
    return static_cast<std::size_t>(source > owner ? source - 1 : source) * offsets().end;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(ranks > 1 ? ranks - 1 : 1) * offsets().end; }
};

}  // namespace altorch
