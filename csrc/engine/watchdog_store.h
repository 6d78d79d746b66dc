// A group's store with the checks of the group's watchdog, for ranks that meet before a call can begin. While a rank waits
// for a key, it checks whether its peers live, refused the call, or are in another call.
#pragma once

#include "common/store_view.h"
#include "engine/communicator.h"

namespace altorch {

// Thread rules: one thread.
class WatchdogStore : public StoreView {
 public:
  // The communicator, and the counts of an uneven operation, must outlive this object.
  // `at_least`: a lower bound of the timeout, where the operation has a shorter one.
  WatchdogStore(Communicator& communicator, const Operation& operation,
                std::chrono::milliseconds at_least = {});
  // Both throw Error, also when the operation's deadline passes or the group is closed.
  void check_peers() override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  Communicator& communicator_;
  const Operation asked_;
  Operation operation_;  // the same call, as one that waits for all ranks
  Wait wait_;
};

}  // namespace altorch
