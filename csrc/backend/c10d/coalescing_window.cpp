// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/coalescing_window.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace altorch::backend {

bool Batch::add(PreparedCall& call) {
  const std::lock_guard lock(mutex_);
  if (begun_) return false;
  calls_.push_back(std::move(call));
  return true;
}

Batch::WorkPtr Batch::begin() {
  const std::lock_guard lock(mutex_);
  if (!begun_) {
    begun_ = true;
    try {
      work_ = launch_(std::exchange(calls_, {}));
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  if (failure_) std::rethrow_exception(failure_);
  return work_;
}

std::vector<PreparedCall> Batch::drop(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  if (begun_) return {};
  begun_ = true;
  failure_ = std::move(why);
  return std::exchange(calls_, {});
}

bool KeptWork::wait(std::chrono::milliseconds timeout) {
  const bool done = batch_->begin()->wait(timeout);
  forget_in_registry(*this);
  return done;
}

std::shared_ptr<Batch> CoalescingWindow::keep(PreparedCall call) {
  if (batches.empty() || !batches.back()->add(call)) {
    batches.push_back(std::make_shared<Batch>(launch));
    batches.back()->add(call);
  }
  return batches.back();
}

std::shared_ptr<CoalescingWindow> CoalescingWindows::innermost() const {
  if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  for (auto window = windows_.rbegin(); window != windows_.rend(); ++window) {
    if ((*window)->owner == std::this_thread::get_id()) return *window;
  }
  return nullptr;
}

std::shared_ptr<CoalescingWindow> CoalescingWindows::joinable() const {
  auto window = innermost();
  return window && !window->broken ? window : nullptr;
}

void CoalescingWindows::open(std::shared_ptr<CoalescingWindow> window) {
  const std::lock_guard lock(mutex_);
  windows_.push_back(std::move(window));
  count_.store(static_cast<int>(windows_.size()), std::memory_order_relaxed);
}

void CoalescingWindows::close(const std::shared_ptr<CoalescingWindow>& window) {
  const std::lock_guard lock(mutex_);
  std::erase(windows_, window);
  count_.store(static_cast<int>(windows_.size()), std::memory_order_relaxed);
}

}  // namespace altorch::backend
