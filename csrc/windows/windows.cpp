// SPDX-License-Identifier: BSD-3-Clause
#include "windows/windows.h"

#include <algorithm>
#include <atomic>

#include "runtime/callback_thread.h"
#include "runtime/communicator.h"
#include "runtime/progress.h"
#include "windows/window.h"

namespace altorch {
namespace {

std::atomic<bool> stopped{false};

}  // namespace

void Windows::stop() { stopped.store(true); }

Windows::Windows() = default;
Windows::~Windows() = default;

Windows& Windows::of(Communicator& group) {
  const auto make = []() -> std::unique_ptr<OneSided> { return std::make_unique<Windows>(); };
  return static_cast<Windows&>(group.one_sided(make));
}

int Windows::next_number() {
  const std::lock_guard lock(mutex_);
  return ++number_;
}

void Windows::add(std::shared_ptr<Window> window) {
  const std::lock_guard lock(mutex_);
  windows_.push_back(std::move(window));
}

// Its memory goes outside the lock: it may be a tensor.
void Windows::remove(const Window& window) {
  if (!ProgressThread::usable()) return;  // in a forked child, the lock may be held for ever
  std::shared_ptr<Window> removed;
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(windows_.begin(), windows_.end(), [&](const auto& each) { return each.get() == &window; });
  if (found == windows_.end()) return;
  removed = std::move(*found);
  windows_.erase(found);
}

bool Windows::any() {
  if (!ProgressThread::usable()) return false;
  const std::lock_guard lock(mutex_);
  return !windows_.empty();
}

void Windows::release() {
  if (!ProgressThread::usable()) return;
  std::vector<std::shared_ptr<Window>> released;
  {
    const std::lock_guard lock(mutex_);
    released.swap(windows_);
  }
  for (const auto& window : released) window->release(/*agreed=*/false);
}

void Windows::post(std::shared_ptr<WindowTask> task) {
  const std::lock_guard lock(mutex_);
  task->number = ++posted_;
  tasks_.push_back(std::move(task));
}

std::uint64_t Windows::posted() {
  const std::lock_guard lock(mutex_);
  return posted_;
}

bool Windows::is_busy(const Window& window, int rank, std::uint64_t posted) {
  const std::lock_guard lock(mutex_);
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
    return task->window.get() == &window && !task->waits && !task->finished() && task->number <= posted &&
           (rank == kAnySource || task->call.peer == rank);
  });
}

bool Windows::drive(Clock::time_point now, Driven& found) {
  std::vector<std::shared_ptr<Window>> windows;
  std::vector<std::shared_ptr<WindowTask>> tasks;
  {
    const std::lock_guard lock(mutex_);
    if (windows_.empty() && tasks_.empty()) return false;
    windows = windows_;
    tasks = tasks_;
  }
  bool left = false, ended = false;
  // Those to one target take effect in their order: by messages of themselves, else one by one.
  std::vector<const WindowTask*> unfinished;
  for (const auto& window : windows) {
    if (!window->is_served() || stopped.load(std::memory_order_relaxed)) continue;
    found.moved |= window->serve();
    found.pends();
    left = true;
  }
  for (const auto& task : tasks) {
    const auto is_before = [&](const WindowTask* other) {
      return other->window == task->window && other->waits == task->waits &&
             other->call.peer == task->call.peer;
    };
    const bool has_turn = task->waits || task->window->keeps_order() ||
                          std::none_of(unfinished.begin(), unfinished.end(), is_before);
    if (!has_turn || !task->window->advance(*task, now)) {
      unfinished.push_back(task.get());
      found.pends(task->wait.spin_budget, task->window->wait_target(*task), task->window);
      left = true;
      continue;
    }
    ended = true;
    task->window->ended(*task);
  }
  if (ended) {  // all at once: thousands may end together
    found.moved = true;
    const std::lock_guard lock(mutex_);
    std::erase_if(tasks_, [](const auto& task) { return task->finished(); });
  }
  let_go(windows, tasks);
  return left;
}

// The thread that drops the last reference to a window gives its memory back. That may have to wait
// for a device, and other calls need this thread meanwhile. So the callback thread drops references
// to windows that are not listed. A listed window cannot end here, because the list holds a
// reference.
void Windows::let_go(std::vector<std::shared_ptr<Window>>& windows,
                     std::vector<std::shared_ptr<WindowTask>>& tasks) {
  const auto elsewhere = [](auto& last) { CallbackThread::instance().push([last = std::move(last)] {}); };
  const auto has = [](const auto& all, const std::shared_ptr<Window>& window) {
    return std::find(all.begin(), all.end(), window) != all.end();
  };
  for (auto& task : tasks) {
    if (!has(windows, task->window)) elsewhere(task);
  }
  tasks.clear();
  const std::lock_guard lock(mutex_);
  for (auto& window : windows) {
    if (!has(windows_, window)) elsewhere(window);
  }
  windows.clear();
}

}  // namespace altorch
