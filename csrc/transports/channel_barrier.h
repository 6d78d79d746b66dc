// SPDX-License-Identifier: BSD-3-Clause
// A dissemination barrier among the ranks of a channel. Its messages have a tag of their own, so
// they never match other messages of this thread or of other threads. In round k, rank r notifies
// rank (r + 2^k) modulo the number of ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transports/channel.h"

namespace altorch {

// One barrier. Thread rules: one thread at a time; all ranks begin the barriers of one tag in the
// same order.
class ChannelBarrier {
 public:
  ChannelBarrier(Channel& channel, std::int64_t tag) : channel_(channel), tag_(tag) {}
  ChannelBarrier(const ChannelBarrier&) = delete;

  // Makes progress. kDone: all ranks have come.
  State test(std::optional<Error>& error);
  // The rank whose message is missing: it has not come, or waits for another rank.
  int late_peer() const { return away(-distance_); }
  // Aborts it. False: the object must be kept until the process ends.
  bool cancel() { return channel_.cancel(requests_); }

 private:
  int away(int distance) const { return (channel_.rank() + distance + channel_.size()) % channel_.size(); }

  Channel& channel_;
  const std::int64_t tag_;
  int distance_ = 1;
  bool begun_ = false;
  std::byte sent_{}, received_{};
  std::array<Request, 2> requests_;
};

}  // namespace altorch
