// SPDX-License-Identifier: BSD-3-Clause
// Coalescing windows, and what becomes of one in which something was thrown.
#include "backend/c10d/issue.h"
#include "base/log.h"

namespace altorch::backend {
namespace {

std::atomic<bool> gpus{false};

std::function<void(const std::string&)>& hook() {
  static auto* function = new std::function<void(const std::string&)>();
  return *function;
}

}  // namespace

bool carries_cuda() { return gpus.load(std::memory_order_relaxed); }
void set_carries_cuda(bool value) { gpus.store(value); }
void set_broken_window_hook(std::function<void(const std::string&)> function) {
  hook() = std::move(function);
}

std::shared_ptr<CoalescingWindow> AlBackend::make_window(bool own) {
  // A Work may begin its window's calls when the group is gone already.
  auto self = c10::weak_intrusive_ptr<AlBackend>(c10::intrusive_ptr<AlBackend>::reclaim_copy(this));
  auto launch = [self = std::move(self)](std::vector<PreparedCall> calls) -> WorkPtr {
    const auto backend = self.lock();
    return guarded([&] {
      if (!backend) throw Error(ErrorKind::kClosed, "altorch: the group of this coalescing window is gone");
      const Operation first = calls.front().operation;
      try {
        return backend->cuda_group(first)->launch(c10d::OpType::COALESCED, std::move(calls), /*async=*/true);
      } catch (const Error& error) {
        throw backend->not_launched(first, error);
      } catch (const c10::Error& error) {
        backend->communicator_->abort_call(first,
                                           Error(ErrorKind::kTransport, error.what_without_backtrace()));
        throw;
      }
    });
  };
  auto work = work_of_tasks(c10d::OpType::COALESCED, communicator_->sequence(), {}, options_->timeout);
  return std::make_shared<CoalescingWindow>(own, std::move(work), std::move(launch));
}

void AlBackend::startCoalescing() {
  if (const auto left = windows_.innermost()) {
    windows_.close(left);
    if (!left->broken) abort_window(*left, "another one began on the same thread before it ended");
  }
  windows_.open(make_window(/*own=*/false));
}

AlBackend::WorkPtr AlBackend::endCoalescing() {
  const auto window = windows_.innermost();
  TORCH_CHECK(window, "altorch: this thread has no coalescing window to end");
  windows_.close(window);
  if (window->broken) return window->work;
  return called([&] { return end_window(*window); });
}

AlBackend::WorkPtr AlBackend::end_window(CoalescingWindow& window) {
  window.work->seal();
  if (window.batches.empty()) return window.work;
  if (window.work->has_tasks()) {
    const Error cause(ErrorKind::kUnsupported,
                      "altorch: a coalescing window takes CPU tensors or CUDA tensors, not both");
    abort_window(window, cause.what());
    throw_as_torch(cause);
  }
  WorkPtr last;  // which the device comes to after the others
  for (const auto& batch : window.batches) last = batch->begin();
  return last;
}

void AlBackend::abort_window(CoalescingWindow& window, const std::string& why) {
  const Error cause(ErrorKind::kClosed, "its coalescing window was aborted before it ended: " + why);
  for (const auto& batch : window.batches) {
    const auto calls = batch->drop(as_torch(Error(cause.kind(), std::string("altorch: ") + cause.what())));
    for (const PreparedCall& call : calls)
      log(LogLevel::kWarning, communicator_->refuse(call.operation, cause).what());
  }
}

void AlBackend::spoil_window() noexcept {
  try {
    const auto window = windows_.joinable();
    if (!window || window->own) return;
    window->broken = true;
    window->work->seal();
    abort_window(*window, "a call within it failed");
    if (hook()) hook()(communicator_->name());
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("altorch: while a coalescing window was aborted: ") + error.what());
  }
}

}  // namespace altorch::backend
