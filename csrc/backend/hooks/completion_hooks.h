// SPDX-License-Identifier: BSD-3-Clause
// torch's completion hooks: each hook is called once for every Work of a group that has succeeded.
//
// They are not called for a Work that failed. On CUDA tensors only an asynchronous call leaves a
// Work. It has ended when the watch (backend/cuda/cuda_watch.h) notices that the device is done,
// some 0.1 s later at most. Without a hook, a call costs one look at a flag.
// Source: torch/csrc/distributed/c10d/Hooks.hpp (torch 2.15).
#pragma once

#include <torch/version.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#if defined(C10D_BACKEND_HAS_HOOKS) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)
#define ALTORCH_HAS_COMPLETION_HOOKS 1
#endif

namespace altorch::backend {

// Thread rules: any thread.
class CompletionHooks {
 public:
  // Called with the key of the Work, and with the milliseconds that it took, if they were measured.
  // It runs on the thread that ended the Work, and mutex_ is not held.
  using Hook = std::function<void(std::uint64_t key, std::optional<float> milliseconds)>;

  // A key by which hooks identify a Work; unique in the process.
  static std::uint64_t next_key();

  bool are_there() const { return are_there_.load(std::memory_order_relaxed); }
  // Replaces the hook with the same `id`, if there is one.
  void add(std::int64_t id, Hook hook);
  // Another thread may still be running the hook.
  void remove(std::int64_t id);
  // Removes all hooks and returns them. The caller destroys them, and must hold no lock when it
  // does.
  using Hooks = std::map<std::int64_t, std::shared_ptr<const Hook>>;
  Hooks take_all();
  // What a hook throws is logged.
  void tell(std::uint64_t key, std::optional<float> milliseconds) const noexcept;

 private:
  std::atomic<bool> are_there_{false};
  mutable std::mutex mutex_;  // guards what follows
  Hooks hooks_;
};

#ifdef ALTORCH_HAS_COMPLETION_HOOKS
inline CompletionHooks::Hook for_torch(c10d::CompletionHook hook) {
  return [hook = std::move(hook)](std::uint64_t key, std::optional<float> milliseconds) {
    hook({.completionKey = key, .duration_ms = milliseconds});
  };
}
#endif

}  // namespace altorch::backend
