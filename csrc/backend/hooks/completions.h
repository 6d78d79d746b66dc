// SPDX-License-Identifier: BSD-3-Clause
// torch's completion hook: from its registration on, it is called for every call of a group that is
// done.
//
// A call on CUDA tensors counts as done when it is in order on its stream. The time that the device
// takes is not measured then, so the duration is 0. Thread rules: any thread; the hook runs on the
// callback thread, in the order in which the calls ended.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "trace/observer.h"

namespace altorch::backend {

class Completions {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  // Replaces the hook and returns the one before, if any. That one may belong to Python, so the
  // caller must hold no lock when it destroys it. An empty `hook` removes the hook.
  std::shared_ptr<Hook> set(Hook hook);
  // Waits until the calls in flight have ended, and the hook was called for all that are done.
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
