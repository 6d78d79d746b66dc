// The group's store for ranks that come together in it before an operation can begin: whoever waits for a key
// looks meanwhile whether the peers live, refused the operation or are in another one, as the operation
// itself would.
#pragma once

#include "common/store_view.h"
#include "engine/communicator.h"

namespace altorch {

// Thread rules: one thread.
class AttendedStore : public StoreView {
 public:
  // The communicator, and the counts of an uneven operation, must outlive it.
  // `at_least`: the time that the ranks have, if the operation has less.
  AttendedStore(Communicator& communicator, const Operation& operation,
                std::chrono::milliseconds at_least = {});
  // Both throw Error, also when the operation's own deadline passes or the group is closed.
  void attend() override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  Communicator& communicator_;
  const Operation asked_;
  Operation operation_;  // the same, of which all ranks are awaited
  Wait wait_;
};

}  // namespace altorch
