// SPDX-License-Identifier: BSD-3-Clause
// Small collectives, and small blocks between pairs of ranks, in one kernel per rank, by the LL
// protocol (device/kernels/ll.cuh). The slots are in pinned memory, with one send slot for all
// peers (host_staged), or in the memory of the peers' GPUs, with one send slot for each peer
// (peer). The counters are on the device, so that calls can be captured.
#pragma once

#include <optional>
#include <vector>

#include "base/operation.h"
#include "device/device.h"

namespace altorch {

// How a slot is divided, in words of 8 bytes, which carry 4.
struct LlSlotShape {
  static constexpr std::int64_t kDataBytes = 4;  // of a word

  std::int64_t part = 0;    // of a region, for one receiver, if the receivers get different data
  std::int64_t region = 0;  // of a block of threads
  std::int64_t half = 0;    // of one exchange; there are two
  int blocks = 1;

  // For `bytes` of data in all, for `parts` ranks.
  static LlSlotShape of(std::size_t bytes, int parts, int blocks);
  std::size_t bytes() const { return static_cast<std::size_t>(2 * half) * sizeof(std::uint64_t); }
  // Blocks for so many bytes: enough that each has room, and few.
  int blocks_for(std::int64_t bytes, std::int64_t room) const;
};

// Thread rules: one thread at a time.
class LlExchanges {
 public:
  // Zero at first. By rank; with for_all, send_slots has this rank's slot only.
  struct Slots {
    bool for_all = false;  // a rank has one send slot for all peers, in parts
    LlSlotShape shape, pair_shape;
    std::vector<std::uint64_t*> send_slots;           // this rank's, for each peer
    std::vector<const std::uint64_t*> receive_slots;  // the peers', for this rank
    std::vector<std::uint64_t*> pair_send_slots;
    std::vector<const std::uint64_t*> pair_receive_slots;
  };

  // The shape of a slot of pairs.
  static LlSlotShape pair_shape(int ranks, std::size_t bytes, int blocks = LlExchange::kMostBlocks);
  // Of a vector collective with even blocks: whether no rank sends more bytes than that.
  static bool fits(const Operation& operation, int ranks, std::size_t bytes);

  // An even all_to_all with blocks of at most so many bytes.
  static bool goes_in_pairs(const Operation& operation, std::size_t pair_bytes);

  // `pair_bytes`: of one rank for another, at most; 0: there are no pairs. Throws
  // Error(kUnsupported).
  LlExchanges(Device& device, Slots slots, int rank, int ranks, std::size_t pair_bytes,
              const std::uint32_t* aborted);

  std::size_t pair_bytes() const { return pair_bytes_; }
  // One that fits().
  void enqueue(const Operation& operation, Stream stream);
  // The blocks of an all_to_all that two ranks have for each other, where neither is larger than
  // pair_bytes(). Returns what is left of the operation, if anything is.
  std::optional<Operation> enqueue_pairs(const Operation& operation, Stream stream);

 private:
  Device& device_;
  const Slots slots_;
  const int rank_, ranks_;
  const std::size_t pair_bytes_;
  const std::uint32_t* const aborted_;
  const DeviceMemory numbers_;  // of exchanges, by block, then by rank and block
};

}  // namespace altorch
