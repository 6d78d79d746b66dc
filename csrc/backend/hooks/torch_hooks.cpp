// SPDX-License-Identifier: BSD-3-Clause
#include "backend/hooks/torch_hooks.h"

#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "backend/c10d/without_python.h"
#include "base/log.h"
#include "runtime/callback_thread.h"

namespace altorch::backend {

namespace {

// Of all groups.
struct Living {
  std::mutex mutex;  // guards what follows
  std::set<TorchHooks*> all;
  std::atomic<bool> ended{false};
  std::atomic<int> running{0};
};

Living& living() {
  static auto* instance = new Living();
  return *instance;
}

thread_local bool runs = false;

void run_each(const std::vector<std::shared_ptr<const TorchHooks::AbortHook>>& hooks) noexcept {
  ++living().running;  // before the look: end_all() looks the other way round
  runs = true;
  for (const auto& hook : hooks) {
    if (living().ended.load()) break;
    try {
      (*hook)();
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, std::string("an abort hook failed: ") + error.what());
    } catch (...) {
      log(LogLevel::kWarning, "an abort hook failed");
    }
  }
  runs = false;
  --living().running;
}

}  // namespace

TorchHooks::TorchHooks() {
  const std::lock_guard lock(living().mutex);
  living().all.insert(this);
}

TorchHooks::~TorchHooks() {
  const std::lock_guard lock(living().mutex);
  living().all.erase(this);
}

bool TorchHooks::runs_here() { return runs; }

void TorchHooks::end_all() {
  living().ended.store(true);
  const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (living().running.load() > 0 && std::chrono::steady_clock::now() < most)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::vector<std::map<std::int64_t, std::shared_ptr<const AbortHook>>> last;  // go without the lock
  std::vector<CompletionHooks::Hooks> last_of_completion;
  std::vector<std::shared_ptr<Completions::Hook>> last_of_torch;
  const std::lock_guard lock(living().mutex);
  for (TorchHooks* each : living().all) {
    last_of_torch.push_back(each->on_completion(nullptr));
    last_of_completion.push_back(each->completion_hooks_->take_all());
    const std::lock_guard own(each->mutex_);
    last.push_back(std::exchange(each->hooks_, {}));
  }
}

bool failed_under_way(ErrorKind kind) {
  return kind == ErrorKind::kTimeout || kind == ErrorKind::kPeerLost || kind == ErrorKind::kMismatch ||
         kind == ErrorKind::kTransport || kind == ErrorKind::kInterrupted;
}

void TorchHooks::add(std::int64_t id, AbortHook hook) {
  auto kept = std::make_shared<const AbortHook>(
      std::move(hook));  // as is the one that it replaces, it outlives the lock
  const std::lock_guard lock(mutex_);
  hooks_[id].swap(kept);
}

void TorchHooks::remove(std::int64_t id) {
  std::shared_ptr<const AbortHook> last;  // outlives the lock: it may belong to Python
  const std::lock_guard lock(mutex_);
  const auto found = hooks_.find(id);
  if (found == hooks_.end()) return;
  last = std::move(found->second);
  hooks_.erase(found);
}

void TorchHooks::run_abort_hooks() noexcept {
  if (runs) return;
  std::vector<std::shared_ptr<const AbortHook>> hooks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
  }
  if (hooks.empty() || living().ended.load()) return;
  try {
    const auto done = std::make_shared<std::promise<void>>();
    auto returned = done->get_future();
    CallbackThread::instance().push([done, hooks = std::move(hooks)] {
      run_each(hooks);
      done->set_value();
    });
    const WithoutPython released;
    if (returned.wait_for(kHookTimeout) != std::future_status::ready)
      log(LogLevel::kWarning, "an abort hook has not returned after " + std::to_string(kHookTimeout.count()) +
                                  " s; the failure is told to the other ranks without it");
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, std::string("abort hooks were not run: ") + error.what());
  }
}

std::shared_ptr<Completions::Hook> TorchHooks::on_completion(Completions::Hook hook) {
  const bool is_there = static_cast<bool>(hook);
  auto last = completions_.set(std::move(hook));
  tells_completion_.store(is_there && !living().ended.load());
  return last;
}

void TorchHooks::extend(std::chrono::milliseconds by) {
  const std::lock_guard lock(mutex_);
  extensions_.push_back({by.count(), 0});
  extension_ms_ += by.count();
}

void TorchHooks::begin(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  for (Extension& each : extensions_) {
    if (each.first_call == 0) each.first_call = call;
  }
}

void TorchHooks::end(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  std::erase_if(extensions_, [&](const Extension& each) {
    if (each.first_call != call) return false;
    extension_ms_ -= each.ms;
    return true;
  });
}

void TorchHooks::failed(const ObservedCall& call, const Error& error) {
  if (call.number == 0) return;  // refused before it had a place
  if (failed_under_way(error.kind())) run_abort_hooks();
  if (extension().count() != 0) end(call.number);
  if (tells_completion()) completions_.failed(call);
}

}  // namespace altorch::backend
