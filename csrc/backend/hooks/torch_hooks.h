// SPDX-License-Identifier: BSD-3-Clause
// torch's hooks into a group at work: abort hooks, completion hooks, and temporary timeouts.
//
// While none is set, a call costs one look at a counter. Thread rules: any thread.
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
#include "trace/observer.h"

namespace altorch::backend {

// Whether an error of this kind means that a call failed in flight, which ends a job. An error of
// another kind concerns one call only, or follows from one that was reported before.
bool failed_under_way(ErrorKind kind);

class TorchHooks : public Observer {
 public:
  using AbortHook = std::function<void()>;
  static constexpr std::chrono::seconds kHookTimeout{2};

  // Ends the hooks of all groups: none runs from now on. All are released, because they may belong
  // to Python, which ends. Waits for those that run, a second at most.
  static void end_all();
  // Whether this thread is in an abort hook. A hook cannot wait for the call that it is told of.
  static bool runs_here();

  // Replaces the hook with the same `id`, if there is one.
  void add(std::int64_t id, AbortHook hook);
  // Another thread may still be running the hook.
  void remove(std::int64_t id);
  // Runs the hooks in the order of their ids, on the callback thread. A hook may wait for Python's
  // lock, and the holder of that lock may wait for what the calling thread is about to end. So this
  // returns when all hooks have returned, or after kHookTimeout; hooks that are left then run
  // concurrently. Logs what a hook throws. Does nothing within a hook.
  void run_abort_hooks() noexcept;

  // Adds to the timeouts of the calls made from now on, until the first of them is done (on CUDA:
  // enqueued).
  void extend(std::chrono::milliseconds by);
  std::chrono::milliseconds extension() const {
    return std::chrono::milliseconds(extension_ms_.load(std::memory_order_relaxed));
  }

  // Sets the one hook that is called for every call that is done; see Completions::set().
  std::shared_ptr<Completions::Hook> on_completion(Completions::Hook hook);
  Completions& completions() { return completions_; }
  const std::shared_ptr<CompletionHooks>& completion_hooks() const { return completion_hooks_; }
  // Uses these hooks, which several groups share. To be called before the first call of the group.
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
    std::uint64_t first_call;  // the first call that has it; 0: none yet
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
