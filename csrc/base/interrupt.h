// SPDX-License-Identifier: BSD-3-Clause
// Lets another thread end a long wait. A thread that waits for other ranks checks it repeatedly, as
// it checks whether those ranks live.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"

namespace altorch {

// Thread rules: any thread.
class Interrupt {
 public:
  // The first reason stays.
  void raise(std::string why) {
    const std::lock_guard lock(mutex_);
    if (!why_) why_ = std::move(why);
  }
  // Throws Error(kClosed) with the reason, once there is one.
  void check() const {
    const std::lock_guard lock(mutex_);
    if (why_) throw Error(ErrorKind::kClosed, *why_);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> why_;
};

// While it lives, the waits of this thread check `interrupt`, and no longer the one that they
// checked before.
class Interruptible {
 public:
  explicit Interruptible(std::shared_ptr<const Interrupt> interrupt) : interrupt_(std::move(interrupt)) {
    current() = interrupt_.get();
  }
  ~Interruptible() { current() = before_; }
  Interruptible(const Interruptible&) = delete;

  // Whether another thread may end the waits of this thread.
  static bool is_set() { return current() != nullptr; }
  // Called by a wait of this thread; throws as Interrupt::check(). Does nothing if no other thread
  // may end the wait.
  static void check() {
    if (const Interrupt* interrupt = current()) interrupt->check();
  }

 private:
  static const Interrupt*& current() {
    static thread_local const Interrupt* interrupt = nullptr;
    return interrupt;
  }

  const std::shared_ptr<const Interrupt> interrupt_;
  const Interrupt* const before_ = current();
};

}  // namespace altorch
