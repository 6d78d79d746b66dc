// SPDX-License-Identifier: BSD-3-Clause
// A window of a group: one-sided access to the memory that its ranks have registered.
//
// Each call is checked against what the target has registered, before anything is written. Errors
// name group, window, rank and call. A wait on the host that times out leaves the group as it was,
// and so does an access that times out, if it cannot take effect without this rank. Any other call
// that fails in flight closes the group. Thread rules: any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/watched.h"
#include "runtime/communicator.h"
#include "transports/window.h"
#include "windows/row.h"
#include "windows/stream_waits.h"

namespace altorch {

class Window;

// The name of a call in errors: `to`, with a rank behind it ("put to"), or `name` if there is no
// such rank ("put").
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

// An access, or a wait for a signal, that may outlive the call that started it.
struct WindowTask : Task {
  std::shared_ptr<Window> window;
  WindowCall call;  // of a wait: the rank that signals, and the slot
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
  // The memory of `rank` in this process. Null: this process cannot map it.
  std::byte* map(int rank) const { return remote_->map(rank); }

  // Blocks until the call has taken effect; drives the group's other work meanwhile. Where calls
  // keep no order it first waits for the accesses posted to that rank, for which `timeout` does not
  // count. Throws Error, kInterrupted if a signal handler has raised (backend/c10d/errors.h then
  // throws what it raised). `timeout`: 0 has passed at the first look; kLongestTimeout for none.
  // `buffers_free`: true on success; if it is false, the caller must keep the buffers of `call`
  // until the process ends. What fetch_add and compare_swap found comes back in `call`. Success
  // does not show that the target lives: flush() does.
  void access(WindowCall& call, std::chrono::milliseconds timeout, bool& buffers_free);
  // Whether calls are enqueued on streams, as for memory on GPUs. Then access() returns when the
  // call is enqueued (but for fetch_add and compare_swap), start() must not be used, and streams
  // wait for signals (enqueue_wait()).
  bool is_on_streams() const { return waits_ != nullptr; }
  // Has a stream wait for a signal. `entered`: as in StreamWaits::add().
  void enqueue_wait(int source, int slot, void* stream, bool captured, std::chrono::milliseconds timeout,
                    const std::function<void()>& entered = {});
  // Aborts waits that cannot end by themselves. See Watched.
  bool look() override { return waits_ && waits_->look(); }
  // Why waits were aborted, if any were.
  std::optional<Error> failure() const { return waits_ ? waits_->failure() : std::nullopt; }
  // Blocks the calling thread until the streams are done with the accesses that they were given.
  // Throws Error.
  void drain(std::chrono::milliseconds timeout);

  // Blocks until `source` has signalled once more than was waited for before.
  void wait_signal(int source, int slot, std::chrono::milliseconds timeout);
  // The asynchronous forms of access() and wait_signal(). The task is finished, or in flight: then
  // the caller must post() it, so that it is driven. Both throw Error if the call is refused.
  std::shared_ptr<WindowTask> start(WindowCall call, std::chrono::milliseconds timeout);
  std::shared_ptr<WindowTask> start_wait(int source, int slot, std::chrono::milliseconds timeout);
  // Takes a task of start() or start_wait() that is not finished. From now on it is driven.
  void post(std::shared_ptr<WindowTask> task);
  // Blocks until everything that was started before has taken effect at `rank` (kAnySource: at all
  // ranks), but for what is enqueued on streams: drain() waits for that. Checks that `rank` lives.
  // A signal ends the wait and leaves the accesses in flight. Throws the first failure of the
  // accesses that were posted since the last flush.
  void flush(int rank);
  // Collective: blocks until all ranks have come, and all that any rank started before has taken
  // effect. Throws as flush().
  void fence(std::chrono::milliseconds timeout);

  // For Windows: advances a task. True: it is finished.
  bool advance(WindowTask& task, std::chrono::steady_clock::time_point now);
  WaitTarget wait_target(const WindowTask& task) const;
  bool is_served() const { return remote_->is_served(); }
  bool keeps_order() const { return remote_->keeps_order(); }
  bool serve();
  void ended(const WindowTask& task);

  // Collective: afterwards no rank touches the memory of another through this window. Idempotent.
  // If it throws Error, the window is closed all the same. It needs no peer if the group is closed.
  // Calls that begin meanwhile are refused.
  void close(std::chrono::milliseconds timeout);
  bool is_closed() const { return closed_.load(std::memory_order_acquire); }
  // Closes the window on this rank alone. A peer that accesses this rank's memory from now on gets
  // an error, or waits until the group ends. `agreed`: all ranks close the window.
  void release(bool agreed);

 private:
  Operation operation_of(const WindowCall& call, bool waits, std::chrono::milliseconds timeout) const;
  void check(const WindowCall& call) const;
  void check_usable(const Operation& operation) const;
  // check_usable() and check(); errors name the call.
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
  // Waits for the posted accesses to `rank`. Throws Error if the operation has a deadline and it
  // passes.
  void await_posted(int rank, const Operation& operation);
  std::optional<Error> take_failure(int rank);
  // Throws Error if a rank of the operation is known to be dead.
  void check_alive(const Operation& operation);
  void meet_others(std::chrono::milliseconds timeout);
  // Cancels the call. True: its buffers may be released.
  bool abort(WindowCall& call);

  Communicator& group_;
  const int number_;
  const std::vector<Registered> registered_;
  std::unique_ptr<RemoteMemory> remote_;
  const std::unique_ptr<StreamWaits> waits_;  // null: calls take effect on the host
  std::shared_ptr<void> keep_;
  std::atomic<bool> closed_{false}, releasing_{false};
  std::atomic<int> under_way_{0};  // posted accesses in flight
  bool serves_no_more_ = false;    // serve() has failed; used by the driving thread only
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

// Collective. `gpu`: this rank's GPU, if the memory lies there. `keep` lives as long as a rank may
// touch the memory. `unsupported_reason`: why this rank has no memory to register, as a clause;
// then the call fails on all ranks. Throws Error.
std::shared_ptr<Window> open_window(Communicator& group, std::byte* memory, Registered own,
                                    std::shared_ptr<void> keep, std::chrono::milliseconds timeout,
                                    const std::string& unsupported_reason = "",
                                    const WindowGpu* gpu = nullptr);

}  // namespace altorch
