// SPDX-License-Identifier: BSD-3-Clause
// A backend whose ranks change: torch's reconfigure(), for groups made with
// enable_reconfigure=True.
//
// Every set of ranks is a group of its own, a generation: an AlBackend behind this class. Before
// the first generation there are no peers, and calls raise an error that says so. A working
// generation is kept until all ranks of the next one have come, because one of them may still be in
// a call of it. A failed generation is closed before.
//
// Thread rules: any thread, but one reconfigure() at a time. It changes the rank and the size.
#pragma once

#include "backend/c10d/backend.h"
#include "base/interrupt.h"
#include "base/random_name.h"
#include "health/process_id.h"

// From this version on, torch's interface is the one below.
#if defined(C10D_BACKEND_HAS_RECONFIGURE) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)
#define ALTORCH_HAS_RECONFIGURE 1
#endif
#ifdef ALTORCH_HAS_RECONFIGURE

namespace altorch::backend {

class ReconfigurableBackend : public c10d::Backend {
 public:
  using WorkPtr = AlBackend::WorkPtr;
  using Tensors = AlBackend::Tensors;
  using TensorLists = AlBackend::TensorLists;
  using BackendPtr = c10::intrusive_ptr<Backend>;
  using OptionsPtr = c10::intrusive_ptr<Options>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using MemoryStats = std::unordered_map<std::string, std::uint64_t>;

  // A request to make the group of these ranks. This process is one of them.
  struct Asked {
    std::int64_t uuid = 0;  // never used for another set of ranks
    std::vector<std::string> handles;
    std::vector<ProcessId> processes;  // of the handles, in the same order
    int rank = 0;
    std::chrono::milliseconds timeout{0};
  };
  // Makes a generation. Collective over its ranks, with the same outcome on all of them.
  using Make = std::function<AlBackend::Made(const Asked&)>;

  // `rank`, `size`: as at the start of the job. Handles in an unordered set are sorted by this
  // rank.
  ReconfigurableBackend(int rank, int size, std::string name, c10::intrusive_ptr<AlOptions> options,
                        Make make);

  // The current generation; null: there is none.
  c10::intrusive_ptr<AlBackend> now() const;

  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  // Collective over the new ranks, and done when it returns. Calls in flight fail. Throws Error:
  // kInvalidArgument for invalid handles; after any other problem, on all of the new ranks. The
  // group is then what it was before, unless it had failed. abort() and shutdown() in another
  // thread end the call on this rank; its peers time out.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;

  const std::string getBackendName() const override { return options_->served_name; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return carries_cuda(); }
  bool supportsWindow() const override { return true; }
  bool supportsTimeEstimation() const override { return true; }
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
#ifdef ALTORCH_HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    completion_hooks_->add(id, for_torch(std::move(hook)));
  }
  void unregisterCompletionHook(std::int64_t id) override { completion_hooks_->remove(id); }
#endif
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setGroupUid(const std::string& uid) override;
  void setBoundDeviceId(std::optional<at::Device> device) override;
  void setSequenceNumberForGroup() override {}
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  void release_resources() override;
  void eagerConnectSingleDevice(at::Device device) override;

#define FORWARD(result, function, parameters, arguments) \
  result function parameters override { return use()->function arguments; }
#include "backend/c10d/forwarded_calls.inc"
#undef FORWARD

 private:
  // The current generation, for a call. Throws if there is none.
  c10::intrusive_ptr<AlBackend> use() const;
  Asked check(const c10d::ReconfigureOptions& options) const;
  void replace(const Asked& asked);
  // Ends the reconfigure() that another thread is in.
  void interrupt(const char* why);
  // Refuses later reconfigure() calls. Returns the current backend, or null.
  c10::intrusive_ptr<AlBackend> close();

  const std::string name_;
  const std::string own_name_ = random_name();  // in handles: identifies this object
  const int first_rank_;
  const c10::intrusive_ptr<AlOptions> options_;
  const std::shared_ptr<CompletionHooks> completion_hooks_ =
      std::make_shared<CompletionHooks>();  // of all generations
  mutable std::mutex mutex_;                // a leaf; guards what follows
  std::shared_ptr<const Make> make_;
  c10::intrusive_ptr<AlBackend> now_;
  std::int64_t attempts_ = 0;
  std::shared_ptr<Interrupt> under_way_;  // of the reconfigure() in progress
  bool is_closed_ = false;
  // All copies of an entry share one object. An object of Python is neither copied nor freed under
  // mutex_, because that takes Python's lock.
  std::map<std::int64_t, c10d::AbortHook> hooks_;
  std::function<void(std::shared_ptr<c10d::WorkInfo>)> completion_hook_;
};

}  // namespace altorch::backend

#endif
