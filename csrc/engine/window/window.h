// SPDX-License-Identifier: BSD-3-Clause
// A window of a group: one-sided access to what its ranks have registered.
//
// What is asked for is compared with what the target registered before anything is written. Errors name group, window,
// rank and what was asked. A wait for a signal that ends by its deadline leaves the group as it was; whatever else fails
// under way closes it, as any call does. Thread rules: any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "engine/gpu/watched.h"
#include "engine/window/row.h"
#include "engine/window/stream_waits.h"
#include "transports/window.h"

namespace altorch {

class Window;

// What is asked of a rank, as errors have it: "put to" that rank, or "put" where there is none.
struct Asking {
  const char* to;
  const char* name;
};
inline Asking asking(Access access) { return {kAccesses[access].to, kAccesses[access].name}; }
inline constexpr Asking kWaitForSignal{"wait for a signal of", "wait_signal"}, kFlush{"flush of", "flush"};
// `window`: its number; 0: it has none yet.
Operation one_sided(const Group& group, int window, const Asking& asking, int rank,
                    std::chrono::milliseconds timeout = {});

inline Error no_such_rank(std::int64_t rank, const Group& group) {
  return Error(ErrorKind::kInvalidArgument, "there is no rank " + std::to_string(rank) +
                                                " in the group, which has " + std::to_string(group.size()) +
                                                " ranks");
}
inline Error no_such_slot(int slot) {
  return Error(ErrorKind::kInvalidArgument, "there is no signal slot " + std::to_string(slot) +
                                                "; they are 0 to " + std::to_string(kSignalSlots - 1));
}

// What outlives the call that asked for it: an access, or a wait for a signal.
struct WindowTask : Task {
  std::shared_ptr<Window> window;
  WindowCall call;  // of a wait: whose signal, and in which slot
  bool waits = false;
  std::uint64_t number = 0;  // of Windows, among all that were posted
};

class Window : public Watched, public std::enable_shared_from_this<Window> {
 public:
  // `keep`: what owns the memory of this rank.
  Window(Communicator& group, int number, std::vector<Registered> registered,
         std::unique_ptr<RemoteMemory> remote, std::shared_ptr<void> keep,
         OnError on_error = OnError::kPoison);
  ~Window() override;

  int number() const { return number_; }
  const char* route() const { return remote_->name(); }
  const Registered& registered(int rank) const { return registered_[static_cast<std::size_t>(rank)]; }
  // Null: this process cannot map it.
  std::byte* map(int rank) const { return remote_->map(rank); }

  // Blocks until it has taken effect. Throws Error; then `buffers_free` says whether its buffers may be released.
  void access(WindowCall& call, std::chrono::milliseconds timeout, bool& buffers_free);
  // Whether calls are enqueued on streams, as memory on GPUs has it: access() then returns when that is done (but
  // fetch_add and compare_swap), start() is not for it, and signals are waited for by streams.
  bool is_on_streams() const { return waits_ != nullptr; }
  // `entered`: called when it is looked after, before the stream gets it.
  void enqueue_wait(int source, int slot, void* stream, bool captured, std::chrono::milliseconds timeout,
                    const std::function<void()>& entered = {});
  // Ends waits that cannot end by themselves.
  bool look() override { return waits_ && waits_->look(); }
  // Why it has ended some.
  std::optional<Error> failure() const { return waits_ ? waits_->failure() : std::nullopt; }
  // Blocks the host until the streams are done with what they were given. Throws Error.
  void drain(std::chrono::milliseconds timeout);

  // Until `source` has signalled once more than was waited for before.
  void wait_signal(int source, int slot, std::chrono::milliseconds timeout);
  // The same for who does not wait: finished, or under way until somebody drives it. Throws Error where it is refused.
  std::shared_ptr<WindowTask> start(WindowCall call, std::chrono::milliseconds timeout);
  std::shared_ptr<WindowTask> start_wait(int source, int slot, std::chrono::milliseconds timeout);
  // What start() gave, if it is not finished: from now on it is driven.
  void post(std::shared_ptr<WindowTask> task);
  // Until everything that was started before has taken effect at `rank` (kAnySource: anywhere), which lives. Throws what
  // failed first of that which was posted since the last time.
  void flush(int rank);
  // Collective: all ranks have come, and what any of them started before has taken effect. Throws as flush().
  void fence(std::chrono::milliseconds timeout);

  // Of Windows: moves a task on; true when it is finished.
  bool advance(WindowTask& task, std::chrono::steady_clock::time_point now);
  Awaited awaited(const WindowTask& task) const;
  bool is_served() const { return remote_->is_served(); }
  bool keeps_order() const { return remote_->keeps_order(); }
  bool serve();
  void ended(const WindowTask& task);

  // Collective: no rank touches the memory of another through this window any more. Idempotent. Throws Error, closed
  // all the same. Needs no peer where the group is closed. What begins meanwhile is refused.
  void close(std::chrono::milliseconds timeout);
  bool is_closed() const { return closed_.load(std::memory_order_acquire); }
  // The same for this rank alone: who touches its memory from now on is told, or waits for the end of the group.
  void release(bool agreed);

 private:
  Operation operation_of(const WindowCall& call, bool waits, std::chrono::milliseconds timeout) const;
  void check(const WindowCall& call) const;
  void check_usable(const Operation& operation) const;
  // Both; errors say what was asked.
  void admit(const Operation& operation, const WindowCall& call) const;
  bool take_signal(int source, int slot);
  std::uint64_t awaited_signals(int source, int slot) const;
  std::optional<Error> look_for_dead(const WindowCall& call, const Operation& operation);
  State begin(WindowCall& call, const Operation& operation, std::optional<Error>& noticed);
  State test(WindowCall& call, std::optional<Error>& noticed);
  State attempt(WindowTask& task, std::optional<Error>& noticed);
  std::optional<Error> look_after(const WindowCall& call, bool waits, const Operation& operation, Wait& wait,
                                  std::chrono::steady_clock::time_point now) const;
  Error failed(const Operation& operation, const Error& noticed, const Wait& wait, bool waited);
  // For those that are under way to `rank`. Throws Error where the operation has a deadline, which passes.
  void await_posted(int rank, const Operation& operation);
  std::optional<Error> take_failure(int rank);
  // That nobody is known to be dead whom the operation is of. Throws Error.
  void check_alive(const Operation& operation);
  void meet_others(std::chrono::milliseconds timeout);
  // Whether its buffers may be released.
  bool give_up(WindowCall& call);

  Communicator& group_;
  const int number_;
  const std::vector<Registered> registered_;
  std::unique_ptr<RemoteMemory> remote_;
  const std::unique_ptr<StreamWaits> waits_;  // null: calls take effect on the host
  std::shared_ptr<void> keep_;
  std::atomic<bool> closed_{false}, releasing_{false};
  std::atomic<int> under_way_{0};  // accesses that were posted
  bool serves_no_more_ = false;    // of who drives
  std::atomic<std::uint32_t> calls_{0};
  std::mutex fence_mutex_;
  std::mutex looking_;
  Wait look_;                         // guarded by it
  mutable std::mutex mutex_;          // a leaf; guards what follows
  std::vector<std::uint64_t> taken_;  // signals that were waited for
  struct Failure {
    int rank;
    Error error;
  };
  std::vector<Failure>
      failures_;  // of posted accesses, oldest first, one of each rank: what flush() has yet to tell
};

// Collective. `gpu`: of memory that lies there. `keep` lives as long as a rank may touch the memory. `unsupported_reason`: a
// clause that says why this rank has no memory to register; then the call fails on all ranks. Throws Error.
std::shared_ptr<Window> open_window(Communicator& group, std::byte* memory, Registered own,
                                    std::shared_ptr<void> keep, std::chrono::milliseconds timeout,
                                    const std::string& unsupported_reason = "",
                                    const WindowGpu* gpu = nullptr);

}  // namespace altorch
