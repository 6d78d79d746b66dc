// SPDX-License-Identifier: BSD-3-Clause
// A block of threads, as a kernel's source knows it, of a few threads of the host: so few that
// every loop has a tail, and an odd number. What runs outside of one is alone. To be included
// before the kernels.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <new>
#include <thread>
#include <vector>

namespace altorch {

class FakeBlock {
 public:
  static constexpr int kThreads = 3;

  // Returns when all of them have done it.
  template <class Act>
  static void run(const Act& act) {
    FakeBlock block;
    std::vector<std::thread> others;
    for (int thread = 1; thread < kThreads; ++thread)
      others.emplace_back([&block, &act, thread] { block.enter(thread, act); });
    block.enter(0, act);
    for (std::thread& other : others) other.join();
  }

  static int threads() { return current_ ? kThreads : 1; }
  static int thread() { return thread_; }
  static void synchronize() {
    if (current_) current_->barrier_.arrive_and_wait();
  }
  // Whether it holds for all threads, told to all.
  static bool all(bool condition) {
    if (!current_) return condition;
    FakeBlock& block = *current_;
    if (!condition) block.not_all_.store(true);
    synchronize();
    const bool found = !block.not_all_.load();
    synchronize();
    if (thread_ == 0) block.not_all_.store(false);
    synchronize();
    return found;
  }
  // Memory of the block: of one object.
  template <class Shared>
  static Shared& shared() {
    static_assert(sizeof(Shared) <= sizeof(memory_));
    static thread_local Shared own;  // of who is alone
    return current_ ? *std::launder(reinterpret_cast<Shared*>(current_->memory_)) : own;
  }

 private:
  template <class Act>
  void enter(int thread, const Act& act) {
    current_ = this;
    thread_ = thread;
    act();
    current_ = nullptr;
    thread_ = 0;
  }

  static inline thread_local FakeBlock* current_ = nullptr;
  static inline thread_local int thread_ = 0;
  std::barrier<> barrier_{kThreads};
  std::atomic<bool> not_all_{false};
  alignas(std::max_align_t) std::byte memory_[4096] = {};
};

}  // namespace altorch

#define AL_THREADS altorch::FakeBlock::threads()
#define AL_THREAD altorch::FakeBlock::thread()
#define AL_SYNCHRONIZE() altorch::FakeBlock::synchronize()
#define AL_ALL(condition) altorch::FakeBlock::all(condition)
#define AL_SHARED(type, name) type& name = altorch::FakeBlock::shared<type>()
