// SPDX-License-Identifier: BSD-3-Clause
// Copies into shared memory that a peer has read before, and reads next.
//
// A store to a line that another core has read must take the line away from that core. Between
// cores that share no cache this takes long, and prefetching does not help. A streaming store
// (x86's movntdq) does not wait for the other core: the line goes to memory, where the peer finds
// it. 32 KiB on an AMD EPYC, us, write and then read by the peer (docs/decisions.md has the
// collectives):
//
//                            stores        streaming stores
//     one cache for both     3.2 + 0.8     0.8 + 2.2
//     no cache in common     12.4 + 2.1    0.8 + 2.2
//
// Cores that share a cache also share the way to memory. If both write at the same time, streaming
// makes 1 MiB and more up to 1.4 times slower there. Threads move between cores, and virtual
// machines between caches. Therefore PeerCopy now and then tries ordinary stores on a part of a
// copy. It streams while they are slow and streaming is not: if the source is what is slow, both
// are.
#pragma once

#include <cstdint>

namespace altorch::shm {

// Thread rules: one thread at a time.
class PeerCopy {
 public:
  // From how many picoseconds a byte ordinary stores are slow. kTogether is for peers that write at
  // the same time: stores take 100 to 135 ps between cores that share a cache, and 380 otherwise.
  // kAlone is for a peer that only reads: reading what was streamed takes it 70 ps.
  enum Slow : std::int64_t { kTogether = 250, kAlone = 70 };
  explicit PeerCopy(Slow slow = kTogether) : slow_from_(slow) {}

  // The ranges do not overlap. All bytes are visible to a thread that sees what this thread stores
  // with release afterwards.
  void copy(void* to, const void* from, std::int64_t bytes);

  // Whether the next copy of `bytes` uses streaming stores.
  bool streams(std::int64_t bytes) const { return bytes >= kLeast && left_ > 0; }
  // Records how long ordinary stores took.
  void note(std::int64_t bytes, std::int64_t nanoseconds);
  // Records how long streaming stores took.
  void note_streamed(std::int64_t bytes, std::int64_t nanoseconds);

  // Below it, reading the clock would cost too much. So much of a copy is a trial of ordinary
  // stores.
  static constexpr std::int64_t kLeast = 4 << 10;

 private:
  const std::int64_t slow_from_;
  int slow_ = 0;  // slow trials in a row
  int left_ = 0;  // copies that stream before the next trial
};

}  // namespace altorch::shm
