// SPDX-License-Identifier: BSD-3-Clause
// A group's store with the checks of the group's watchdog, for ranks that exchange data before a
// call can begin. While a rank waits for a key, it checks whether a peer has died, refused the
// call, or made another call.
#pragma once

#include "rendezvous/store_view.h"
#include "runtime/communicator.h"

namespace altorch {

// Thread rules: one thread.
class WatchdogStore : public StoreView {
 public:
  // The communicator, and the counts of an uneven operation, must outlive this object.
  // `at_least`: a lower bound of a collective's timeout. A wait for a message ends with get()'s own
  // timeout only.
  WatchdogStore(Communicator& communicator, const Operation& operation,
                std::chrono::milliseconds at_least = {});
  // Both throw Error, also when the operation's deadline passes or the group is closed.
  void check_peers() override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  Communicator& communicator_;
  const Operation asked_;
  Operation operation_;  // of a message: a call that waits for all ranks instead
  Wait wait_;
};

}  // namespace altorch
