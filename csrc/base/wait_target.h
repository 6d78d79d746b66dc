// SPDX-License-Identifier: BSD-3-Clause
// A futex wait target: a number in memory that processes share. A thread sleeps until a peer raises
// the number.
//
// The thread that raises the number reads `sleepers` afterwards, and wakes the sleeping threads if
// there are any. Both sides write first and then read, all in one order (seq_cst), so at least one
// of them sees the other. A process that is killed in its sleep stays counted in `sleepers`: each
// later raise of the number then costs a system call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace altorch {

// Thread rules: any thread, without a lock, as long as the memory is mapped.
class WaitTarget {
 public:
  using Number = std::atomic<std::uint64_t>;
  using Sleepers = std::atomic<std::uint32_t>;

  WaitTarget() = default;  // no target: no thread would end a sleep
  // `crowded`: a wait should sleep at once, and not spin or yield first (AdaptiveWait::is_crowd).
  WaitTarget(const Number& number, Sleepers& sleepers, std::uint64_t least, bool crowded)
      : number_(&number), sleepers_(&sleepers), least_(least), crowded_(crowded) {}
  friend bool operator==(const WaitTarget&, const WaitTarget&) = default;
  bool crowded() const { return crowded_; }
  explicit operator bool() const { return number_ != nullptr; }

  // Sleeps until the number is raised, or for `most`. Returns false at once if the number is
  // `least` or more already, or if there is no target.
  bool sleep(std::chrono::microseconds most) const;
  // Wakes the threads that sleep for it, so that they look again. A thread that is only about to
  // sleep may miss this.
  void interrupt() const;
  // Raises the number, and wakes the threads that sleep for it. The first form is for a number that
  // only one thread raises; the second form, which adds 1, is for a number that several threads
  // raise.
  static void raise(Number& number, std::uint64_t to, const Sleepers& sleepers) {
    number.store(to, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake_all(number);
  }
  static void raise(Number& number, const Sleepers& sleepers) {
    number.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake_all(number);
  }

 private:
  static void wake_all(const Number& number);

  const Number* number_ = nullptr;
  Sleepers* sleepers_ = nullptr;
  std::uint64_t least_ = 0;
  bool crowded_ = false;
};

}  // namespace altorch
