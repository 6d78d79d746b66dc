// SPDX-License-Identifier: BSD-3-Clause
#include "transports/channel_barrier.h"

namespace altorch {

State ChannelBarrier::test(std::optional<Error>& error) {
  while (distance_ < channel_.size()) {
    if (!begun_) {
      channel_.receive(&received_, sizeof received_, away(-distance_), tag_, requests_[0]);
      channel_.send(&sent_, sizeof sent_, away(distance_), tag_, requests_[1]);
      begun_ = true;
    }
    if (const State state = channel_.test(requests_, error); state != State::kDone) return state;
    begun_ = false;
    distance_ *= 2;
  }
  return State::kDone;
}

}  // namespace altorch
