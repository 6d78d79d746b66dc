// A barrier of the ranks of a channel by messages under a tag of its own: it mixes with nothing else that they do, on this
// thread or on others. In each round a rank tells another one, twice as far ahead as in the round before, that it has come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transports/channel.h"

namespace altorch {

// One meeting. Thread rules: one thread at a time; all ranks begin those of one tag in the same order.
class ChannelMeeting {
 public:
  ChannelMeeting(Channel& channel, std::int64_t tag) : channel_(channel), tag_(tag) {}
  ChannelMeeting(const ChannelMeeting&) = delete;

  // Moves it on. kDone: all ranks have come.
  State test(std::optional<Error>& error);
  // Who has not come yet, or waits for somebody who has not.
  int awaited() const { return away(-distance_); }
  // Gives it up. False where it must be kept until the process ends.
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
