// SPDX-License-Identifier: BSD-3-Clause
// An object that a process has once, and never destroys. A forked child gets a fresh one: the
// threads behind its parent's object do not exist in the child, and one of them may have held a
// lock.
#pragma once

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <new>

namespace altorch {

// Thread rules: any thread. `T` has a default constructor, which may throw: the next get() tries
// again.
template <typename T>
class PerProcess {
 public:
  static T& get() {
    if (T* made = current().load(std::memory_order_acquire)) return *made;
    static const int watched = pthread_atfork(nullptr, nullptr, [] {
      current().store(nullptr);
      new (&making()) std::mutex();  // it may have been locked
    });
    static_cast<void>(watched);
    const std::lock_guard lock(making());
    T* made = current().load(std::memory_order_acquire);
    if (!made) current().store(made = new T(), std::memory_order_release);
    return *made;
  }
  // Null: none was made in this process.
  static T* if_made() { return current().load(std::memory_order_acquire); }

 private:
  static std::atomic<T*>& current() {
    static std::atomic<T*> instance{nullptr};
    return instance;
  }
  static std::mutex& making() {
    alignas(std::mutex) static unsigned char memory[sizeof(std::mutex)];
    static std::mutex* mutex = new (memory) std::mutex();
    return *mutex;
  }
};

}  // namespace altorch
