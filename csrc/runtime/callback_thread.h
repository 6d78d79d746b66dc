// SPDX-License-Identifier: BSD-3-Clause
// Runs what must not stop progress: callbacks of Futures, and the release of tensors, which may
// want Python's lock.
//
// One thread does, in the order of the pushes. A callback may wait for another Future, whose
// callbacks stand behind it (PowerSGD's hook does): when nothing moves for a while, one more thread
// goes on with the queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace altorch {

template <typename T>
class PerProcess;

// Thread rules: any thread may push; what is pushed begins in that order.
class CallbackThread {
 public:
  // The first call throws Error(kTransport) where no thread can be started.
  static CallbackThread& instance();
  void push(std::function<void()> work);
  // At exit, while Python can still be waited for: what was pushed is done, for `timeout` at most;
  // from then on nothing begins, and what is pushed is never freed. A thread that wanted Python's
  // lock later would be ended by the interpreter in the middle of C++, and the process with it.
  // False when something is not done then. Does nothing where there are no such threads.
  static bool finish(std::chrono::milliseconds timeout);

 private:
  friend class PerProcess<CallbackThread>;
  CallbackThread();
  // `spare`: started because another was stuck; ends when it has had nothing to do for a while.
  void loop(bool spare);
  void relieve();

  std::mutex mutex_;
  std::condition_variable wake_, stuck_, done_;
  std::deque<std::function<void()>> queue_;
  int idle_ = 0;  // threads that wait for work
  int busy_ = 0;  // threads that have some
  bool finished_ = false;
  bool watching_ = false;    // relieve() looks whether the queue moves
  bool has_relief_ = false;  // its thread lives
  std::uint64_t begun_ = 0;  // pieces of work
};

}  // namespace altorch
