// SPDX-License-Identifier: BSD-3-Clause
// What torch wants to be told, and what it may change, while a group is at work: abort and completion hooks, temporary
// timeouts.
//
// Costs a call one look at a counter while nobody uses it. Thread rules: any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/hooks/completion_hooks.h"
#include "backend/hooks/completions.h"
#include "observe/observer.h"

namespace altorch::backend {

// Whether a call that fails so has failed under way, which ends a job. The rest is a slip of one call's, or follows from
// something that was told before.
bool failed_under_way(ErrorKind kind);

class TorchHooks : public Observer {
 public:
  using AbortHook = std::function<void()>;
  static constexpr std::chrono::seconds kHookPatience{2};

  // None runs from now on, in any group, and none is kept: they may belong to Python, which ends. Waits a second at most
  // for those that run.
  static void end_all();
  // Whether this thread is in a hook, which cannot wait for what it is told of.
  static bool runs_here();

  // `id` of one that is there already: replaces it.
  void add(std::int64_t id, AbortHook hook);
  // Another thread may still be running it.
  void remove(std::int64_t id);
  // In the order of their ids, on the callback thread: a hook may wait for Python's lock, and its holder for what the calling
  // thread is about to end. Returns when all have returned, or after kHookPatience; the hooks then go on beside what follows.
  // What a hook throws is logged. Does nothing within a hook.
  void run_abort_hooks() noexcept;

  // Added to the timeouts of the calls made from now on, until the first of them is done (on CUDA: is enqueued).
  void extend(std::chrono::milliseconds by);
  std::chrono::milliseconds extension() const {
    return std::chrono::milliseconds(extension_ms_.load(std::memory_order_relaxed));
  }

  // Of every call that is done; one hook. Empty: none from now on. Returns the one before, as Completions::set().
  std::shared_ptr<Completions::Hook> on_completion(Completions::Hook hook);
  Completions& completions() { return completions_; }
  const std::shared_ptr<CompletionHooks>& completion_hooks() const { return completion_hooks_; }
  // Those of several groups, before the first call.
  void share(std::shared_ptr<CompletionHooks> hooks) { completion_hooks_ = std::move(hooks); }

  TorchHooks();
  ~TorchHooks() override;

  void issued(const ObservedCall& call) override {
    if (extension().count() != 0) begin(call.number);
    if (tells_completion()) completions_.issued(call);
  }
  void finished(const ObservedCall& call, const char*, std::string_view,
                std::chrono::nanoseconds took) override {
    if (extension().count() != 0) end(call.number);
    if (tells_completion()) completions_.finished(call, took);
  }
  void failed(const ObservedCall& call, const Error& error) override;

 private:
  struct Extension {
    std::int64_t ms;
    std::uint64_t first_call;  // of those that have it; 0: none yet
  };
  bool tells_completion() const { return tells_completion_.load(std::memory_order_relaxed); }
  void begin(std::uint64_t call);
  void end(std::uint64_t call);

  std::atomic<bool> tells_completion_{false};
  Completions completions_;
  std::shared_ptr<CompletionHooks> completion_hooks_ = std::make_shared<CompletionHooks>();
  std::atomic<std::int64_t> extension_ms_{0};  // the sum of what follows
  std::mutex mutex_;                           // guards what follows
  std::vector<Extension> extensions_;
  std::map<std::int64_t, std::shared_ptr<const AbortHook>>
      hooks_;  // made, copied and destroyed without the lock: Python's
};

}  // namespace altorch::backend
