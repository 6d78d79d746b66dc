// SPDX-License-Identifier: BSD-3-Clause
// What a thread may sleep for: a number in memory that processes share, which a peer raises.
//
// Whoever raises it looks at `sleepers` afterwards, and wakes them where there are any. Both sides write first and then
// read, all in one order (seq_cst), so that one of them sees the other. A process that is killed in its sleep leaves its
// mark behind, which costs the others a system call whenever they raise the number.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace altorch {

// Thread rules: any thread, without a lock, as long as the memory is mapped.
class Awaited {
 public:
  using Number = std::atomic<std::uint64_t>;
  using Sleepers = std::atomic<std::uint32_t>;

  Awaited() = default;  // nobody would end a sleep
  // `crowded`: it is better to sleep at once than to wait awake for a while (AdaptiveWait::is_crowd).
  Awaited(const Number& number, Sleepers& sleepers, std::uint64_t least, bool crowded)
      : number_(&number), sleepers_(&sleepers), least_(least), crowded_(crowded) {}
  friend bool operator==(const Awaited&, const Awaited&) = default;
  bool crowded() const { return crowded_; }
  explicit operator bool() const { return number_ != nullptr; }

  // Sleeps until the number is raised, or for `most`. False, at once, when it is `least` or more, or nothing is awaited.
  bool sleep(std::chrono::microseconds most) const;
  // Has who sleeps for it look again. One that is only about to sleep may miss that.
  void interrupt() const;
  // Of whoever raises it: the only one, or one of many.
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
