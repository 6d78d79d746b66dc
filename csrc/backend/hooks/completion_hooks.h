// SPDX-License-Identifier: BSD-3-Clause
// torch's completion hooks: each is told of every Work of a group that has ended well, once, when it has.
//
// What failed they are never told of. On CUDA tensors only an asynchronous call leaves a Work, and it has ended when the
// watch has seen that the device is done, some 0.1 s later at most. Costs a call one look at a flag while there is no hook.
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
  // The key of the Work, and how many milliseconds it took, where that was measured. On the thread that ended it, which
  // holds no lock of ours.
  using Hook = std::function<void(std::uint64_t key, std::optional<float> milliseconds)>;

  // By which hooks know a Work again; no two of a process have the same.
  static std::uint64_t next_key();

  bool are_there() const { return are_there_.load(std::memory_order_relaxed); }
  // `id` of one that is there already: replaces it.
  void add(std::int64_t id, Hook hook);
  // Another thread may still be running it.
  void remove(std::int64_t id);
  // Those that there were: their end is the caller's, who holds no lock then.
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
