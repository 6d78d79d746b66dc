// SPDX-License-Identifier: BSD-3-Clause
// torch's completion hook: told of every call of a group that is done, from the moment it is registered.
//
// On CUDA tensors a call is done, as told here, when it is in order on its stream; how long the device takes nobody has
// measured then, and the duration is 0. Thread rules: any thread; the hook runs on the callback thread, in the order in which
// the calls ended.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "observe/observer.h"

namespace altorch::backend {

class Completions {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  // Instead of the one before, if any, which it returns: that may belong to Python, so no lock may be held where it goes.
  // Empty: none from now on.
  std::shared_ptr<Hook> set(Hook hook);
  // Until the calls that are under way have ended, and the hook has been told of all that had.
  void wait_for_pending();

  void issued(const ObservedCall& call);
  void finished(const ObservedCall& call, std::chrono::nanoseconds took);
  void failed(const ObservedCall& call);

 private:
  bool ends(const ObservedCall& call);

  std::mutex mutex_;  // guards what follows
  std::condition_variable ended_;
  std::shared_ptr<Hook> hook_;
  std::set<std::uint64_t> under_way_;  // numbers of calls
};

}  // namespace altorch::backend
