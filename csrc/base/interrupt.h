// SPDX-License-Identifier: BSD-3-Clause
// A long wait of one thread that another thread may end: whoever waits for other ranks looks for it, as he looks whether
// they live.
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

// As long as it lives, the waits of this thread look for `interrupt`, and no longer for what they looked for before.
class Interruptible {
 public:
  explicit Interruptible(std::shared_ptr<const Interrupt> interrupt) : interrupt_(std::move(interrupt)) {
    current() = interrupt_.get();
  }
  ~Interruptible() { current() = before_; }
  Interruptible(const Interruptible&) = delete;

  // Whether somebody may end the waits of this thread.
  static bool is_set() { return current() != nullptr; }
  // For a wait of this thread; does nothing where nobody may end it.
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
