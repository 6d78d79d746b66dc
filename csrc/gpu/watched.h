// SPDX-License-Identifier: BSD-3-Clause
// An object with work in flight on a GPU, which the two threads of CudaWatch look after
// (backend/cuda/cuda_watch.h).
#pragma once

#include <memory>
#include <utility>

#include "runtime/callback_thread.h"

namespace altorch {

// CudaWatch calls both functions repeatedly while they return true. Each function has a thread of
// its own.
class Watched {
 public:
  virtual ~Watched() = default;
  // May query CUDA, which may block the calling thread.
  virtual bool poll() { return false; }
  // Never calls CUDA, so it does not block when CUDA blocks other threads.
  virtual bool look() = 0;
};

// For a thread that holds watched objects for a moment and must not wait for a device. While a
// BriefOwner lives on a thread, the objects of make_watched() of which the thread holds the last
// reference are destroyed by CallbackThread.
class BriefOwner {
 public:
  BriefOwner() { ++depth_; }
  ~BriefOwner() { --depth_; }
  BriefOwner(const BriefOwner&) = delete;
  static bool on_this_thread() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

// As std::make_shared() does. The destructor of a watched object may wait for the device for 20 s.
template <typename T, typename... Args>
std::shared_ptr<T> make_watched(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [](T* last) {
    if (!BriefOwner::on_this_thread()) return delete last;
    try {
      CallbackThread::instance().push([last] { delete last; });
    } catch (const std::exception&) {  // no memory or no thread: it is never destroyed
    }
  });
}

}  // namespace altorch
